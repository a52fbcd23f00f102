#!/bin/bash
# Runs the commands of README.md, HACKING.md and the pages in docs/ unchanged,
# and compares docs/reference/cli.md with the program's output. The
# commands use the default paths, so each page runs in a mount namespace where
# /run and the paths below /var/lib are empty and are discarded afterwards. The pages of
# users who install the package are typed in a bare Debian, beside the package and not in
# the tree (hack/bare.sh).
#
# In a page:  ```sh             is run; hack/arch checks that all commands are in such blocks
#             ```sh background  continues while the next ones run
#             ```text output    is the output of the block before it: ... stands for
#                               anything, and times may differ
#             <!-- docs-test    up to --> is run but hidden from readers: it sets up
#                               the scene of the page (background, too)
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$1 page=${2-}
installed="docs/docker.md docs/podman.md docs/fstab.md docs/nomad.md docs/systemd.md docs/tasks.md"
engines="docker.io podman runc busybox-static curl" # hack/deb/test.sh has the same, and so the same base

if [ -z "$page" ]; then
	if ! diff -u docs/reference/cli.md <(hack/cli-docs.sh "$bin"); then
		echo "docs-test: docs/reference/cli.md differs from the program's output: run 'make docs'" >&2
		exit 1
	fi
	if [ "$(id -u)" != 0 ]; then
		echo "docs-test: the commands mount file systems: run this as root" >&2
		exit 1
	fi
	debs=$(mktemp -d)
	trap 'rm -rf "$debs"' EXIT
	hack/deb/build.sh "$bin" v1 "$debs" >/dev/null
	for page in $installed; do
		hack/bare.sh --packages "$engines" --bind "$debs:/root" --read-only "$PWD:/tree" -- \
			env DOCS_TEST_BARE=1 /tree/hack/docs-test.sh /usr/bin/csi-volmgr "/tree/$page" </dev/null
	done
	grep --recursive --include=*.md --files-with-matches -E '^ *```sh( background)?$' README.md HACKING.md docs | sort | while read -r page; do
		case " $installed " in *" $page "*) continue ;; esac
		unshare --mount --propagation private "$0" "$bin" "$page" </dev/null
	done
	exit
fi

# Volumes of the local driver are sparse files, which a tmpfs can hold.
dirs="/run /var/lib/kubelet /var/lib/csi-volmgr /etc/csi-volmgr"
if [ -n "${DOCS_TEST_BARE-}" ]; then
	dirs=/var/lib/kubelet
	mkdir -p /run/systemd/system
	cp hack/deb/systemctl /usr/bin/systemctl
fi
for dir in $dirs; do
	[ -d "$dir" ] || { mkdir -p "$dir"; made+=("$dir"); }
	mount -t tmpfs -o mode=755 docs-test "$dir"
	mount --make-shared "$dir"
done

blocks=$(mktemp -d)
running=()
finish() {
	code=$?
	trap - EXIT
	for pid in ${running[@]+"${running[@]}"}; do
		if kill -TERM -- "-$pid" 2>/dev/null; then wait "$pid" || true; fi
	done
	[ "$code" = 0 ] || [ -z "${DOCS_TEST_BARE-}" ] || tail -n 40 /run/daemon.log >&2
	[ "$code" = 0 ] || { echo "--- what ran beside it said:"; tail -n 40 "$blocks"/*.log; } >&2
	# Loop devices are found by the paths of their files, which vanish with the mounts.
	loops=$(losetup --list --noheadings --output NAME,BACK-FILE | awk '$2 ~ "^/var/lib/csi-volmgr/" {print $1}')
	grep -oE ' (/var/lib/(kubelet|csi-volmgr)|/etc/csi-volmgr|/run)(/[^ ]*)? ' /proc/self/mountinfo | tac | xargs -r umount --lazy 2>/dev/null || true
	[ -z "$loops" ] || losetup --detach $loops 2>/dev/null || true # most are gone with their mounts
	rm -rf "$blocks"
	for dir in ${made[@]+"${made[@]}"}; do rmdir "$dir" 2>/dev/null || true; done
	exit "$code"
}
trap finish EXIT

# Each block becomes a file: N.sh, N.background.sh, or N.out for what N.sh prints.
awk -v dir="$blocks" '
	/^<!-- docs-test( background)?$/ { file = sprintf("%s/%02d%s.sh", dir, ++n, ($NF == "background" ? ".background" : "")); indent = 1; next }
	/^ *```sh( background)?$/ { file = sprintf("%s/%02d%s.sh", dir, ++n, ($NF == "background" ? ".background" : "")); indent = index($0, "`"); next }
	/^ *```text output$/ { file = sprintf("%s/%02d.out", dir, n); indent = index($0, "`"); next }
	/^ *```/ || /^-->$/ { file = ""; next }
	file != "" { print substr($0, indent) > file }
' "$page"

# printed FILE: whether the output matches FILE, the page's block.
printed() {
	local same='s/\b([0-9.]+(ms|µs|[dhms]))+\b/AGE/g; s/[ \t]+/ /g; s/ $//' want got
	want=$(sed -E "$same" "$1") got=$(sed -E "$same" "$2")
	want=$(sed 's/[][\\*?]/\\&/g; s/\.\.\./*/g' <<<"$want")
	# shellcheck disable=SC2053
	[[ $got == $want ]] || { echo "docs-test: $page shows:"; cat "$1"; echo "docs-test: but the output above differs"; return 1; } >&2
}

# stop_daemon, for scenes, does what `systemctl stop csi-volmgr` does.
stop_daemon() {
	local pid
	pid=$(</var/lib/csi-volmgr/state.db.lock)
	kill "$pid" && tail --pid="$pid" -s 0.1 -f /dev/null
}
export -f stop_daemon
if [ -n "${DOCS_TEST_BARE-}" ]; then
	# shellcheck source=hack/deb/engines.sh
	. hack/deb/engines.sh
	cd /root # where the package is
else # pages for installed systems call the program by its name alone
	mkdir "$blocks/bin"
	ln -s "$(realpath "$bin")" "$blocks/bin/csi-volmgr"
	PATH=$blocks/bin:$PATH
fi
sudo() { env "$@"; } # which takes NAME=value, too
export -f sudo
for block in "$blocks"/*.sh; do
	sed 's/^/$ /' "$block"
	case "$block" in
	*.background.sh)
		# shellcheck source=/dev/null
		# In a session of its own, so that its children end with it (go run).
		(eval "exec setsid $(sed 's/^sudo //' "$block")") >"$block.log" 2>&1 &
		running=("$!" ${running[@]+"${running[@]}"}) # the last one is stopped first
		for _ in $(seq 300); do
			"$bin" version | grep -q '^daemon: .*none answers' || break
			kill -0 "$!" || exit 1
			sleep 0.1
		done
		;;
	*)
		if [ -e "${block%.sh}.out" ]; then
			timeout 300 bash -euo pipefail "$block" | tee "$block.printed"
			printed "${block%.sh}.out" "$block.printed"
		else
			timeout 300 bash -euo pipefail "$block"
		fi
		;;
	esac
done
echo "docs-test: every command of $page succeeded"
