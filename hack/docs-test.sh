#!/bin/bash
# Runs the commands of README.md and of the pages below, as they stand there, and
# compares docs/reference/cli.md with what the program prints. The commands use
# the default paths, so each page's run in a mount namespace where /run and the
# paths below /var/lib are empty and forgotten afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$1 page=${2-}
pages=(README.md docs/operate.md docs/containers.md docs/drivers.md docs/write-a-driver.md docs/reference/api.md)

if [ -z "$page" ]; then
	if ! diff -u docs/reference/cli.md <(hack/cli-docs.sh "$bin"); then
		echo "docs-test: docs/reference/cli.md is not what the program prints: run 'make docs'" >&2
		exit 1
	fi
	if [ "$(id -u)" != 0 ]; then
		echo "docs-test: the commands mount file systems: run this as root" >&2
		exit 1
	fi
	for page in "${pages[@]}"; do
		grep -q '^```sh' "$page" || { echo "docs-test: $page has no commands" >&2; exit 1; }
		unshare --mount --propagation private "$0" "$bin" "$page"
	done
	exit
fi

# Volumes of the local driver are sparse files, which a tmpfs can hold.
for dir in /run /var/lib/kubelet /var/lib/csi-volmgr; do
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
	[ "$code" = 0 ] || { echo "--- what ran beside it said:"; tail -n 40 "$blocks"/*.log; } >&2
	# Devices are found by the paths of their files, which go with the mounts.
	loops=$(losetup --list --noheadings --output NAME,BACK-FILE | awk '$2 ~ "^/var/lib/csi-volmgr/" {print $1}')
	grep -oE ' (/var/lib/(kubelet|csi-volmgr)|/run)(/[^ ]*)? ' /proc/self/mountinfo | tac | xargs -r umount --lazy 2>/dev/null || true
	[ -z "$loops" ] || losetup --detach $loops || true
	rm -rf "$blocks"
	for dir in ${made[@]+"${made[@]}"}; do rmdir "$dir" 2>/dev/null || true; done
	exit "$code"
}
trap finish EXIT

# Each fenced block that begins with ```sh becomes a file: N.sh, or
# N.background.sh for one that goes on while the next ones run.
awk -v dir="$blocks" '
	/^```sh/ { n++; file = sprintf("%s/%02d%s.sh", dir, n, ($2 == "background" ? ".background" : "")); next }
	/^```/ { file = ""; next }
	file != "" { print > file }
' "$page"

sudo() { env "$@"; } # which takes NAME=value, too
export -f sudo
for block in "$blocks"/*.sh; do
	sed 's/^/$ /' "$block"
	case "$block" in
	*.background.sh)
		# shellcheck source=/dev/null
		# In a session of its own, so that what it starts ends with it (go run).
		(eval "exec setsid $(sed 's/^sudo //' "$block")") >"$block.log" 2>&1 &
		running=("$!" ${running[@]+"${running[@]}"}) # the last one ends first
		for _ in $(seq 300); do
			"$bin" version | grep -q '^daemon: .*none answers' || break
			kill -0 "$!" || exit 1
			sleep 0.1
		done
		;;
	*) bash -euo pipefail "$block" ;;
	esac
done
echo "docs-test: every command of $page did what it should"
