#!/bin/bash
# Runs the commands of README.md, as they stand there, and compares
# docs/reference/cli.md with what the program prints. The commands use the
# default paths, so they run in a mount namespace where /run and the paths below
# /var/lib are empty and forgotten afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$1

if ! diff -u docs/reference/cli.md <(hack/cli-docs.sh "$bin"); then
	echo "docs-check: docs/reference/cli.md is not what the program prints: run 'make docs'" >&2
	exit 1
fi

if [ "$(id -u)" != 0 ]; then
	echo "docs-check: the commands mount file systems: run this as root" >&2
	exit 1
fi
if [ -z "${DOCS_CHECK_INSIDE-}" ]; then
	DOCS_CHECK_INSIDE=1 exec unshare --mount --propagation private "$0" "$@"
fi

# Volumes of the local driver are sparse files, which a tmpfs can hold.
for dir in /run /var/lib/kubelet /var/lib/csi-volmgr; do
	[ -d "$dir" ] || { mkdir -p "$dir"; made+=("$dir"); }
	mount -t tmpfs -o mode=755 docs-check "$dir"
done

blocks=$(mktemp -d)
daemon=
finish() {
	code=$?
	trap - EXIT
	if [ -n "$daemon" ] && kill -TERM "$daemon" 2>/dev/null; then
		wait "$daemon" || true
	fi
	[ "$code" = 0 ] || { echo "--- the daemon said:"; tail -n 40 "$blocks/daemon.log"; } >&2
	grep -oE ' (/var/lib/(kubelet|csi-volmgr)|/run)(/[^ ]*)? ' /proc/self/mountinfo | tac | xargs -r umount --lazy 2>/dev/null || true
	losetup --list --noheadings --output NAME,BACK-FILE | awk '$2 ~ "^/var/lib/csi-volmgr/" {print $1}' | xargs -r -n1 losetup --detach || true
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
' README.md

sudo() { "$@"; }
export -f sudo
for block in "$blocks"/*.sh; do
	sed 's/^/$ /' "$block"
	case "$block" in
	*.background.sh)
		# shellcheck source=/dev/null
		(eval "exec $(sed 's/^sudo //' "$block")") >"$blocks/daemon.log" 2>&1 &
		daemon=$!
		for _ in $(seq 100); do
			"$bin" version | grep -q '^daemon: .*none answers' || break
			kill -0 "$daemon" || exit 1
			sleep 0.1
		done
		;;
	*) bash -euo pipefail "$block" ;;
	esac
done
echo "docs-check: every command of README.md did what it should"
