#!/bin/bash
# Runs a command as root in a bare Debian system, which is thrown away afterwards:
#
#	bare.sh [--packages "A B"] [--bind SOURCE:PATH] [--read-only SOURCE:PATH] -- COMMAND...
#
# The system has what Debian requires, apt, and the packages named. It is of this
# machine's release and made from Debian's packages; its base is kept below bin/.bare. The
# command has mount and PID namespaces of its own, and this machine's network and devices.
# --bind and --read-only, repeatable, lend it files and directories of this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "bare.sh: it mounts file systems: run it as root" >&2; exit 1; }

packages='' lent=()
while [ "$1" != -- ]; do
	case $1 in
	--packages) packages=$2 ;;
	--bind | --read-only) lent+=("$1" "$2") ;;
	*) echo "bare.sh: unknown option $1" >&2; exit 2 ;;
	esac
	shift 2
done
shift

# enter LAYERS COMMAND... makes LAYERS/root the root directory; BASE is the layer below.
enter() {
	local root=$1/root lent=$LENT from to
	mount -t overlay overlay -o "lowerdir=$BASE,upperdir=$1/upper,workdir=$1/work" "$root"
	shift
	cp --dereference /etc/resolv.conf "$root/etc/resolv.conf"
	tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id" # as systemd does at the first boot
	mount -t proc proc "$root/proc"
	mount --rbind /sys "$root/sys"
	mount --rbind /dev "$root/dev"
	mount -t tmpfs -o mode=755 run "$root/run"
	while read -r how from; do
		[ -n "$how" ] || continue
		to=$root/${from#*:} from=${from%%:*}
		if [ -d "$from" ]; then mkdir -p "$to"; else mkdir -p "${to%/*}" && touch "$to"; fi
		mount --bind "$from" "$to"
		[ "$how" = --bind ] || mount -o remount,bind,ro "$to"
	done <<<"$lent"
	# The root is exchanged: the kernel lets no process behind a chroot(2) make a user namespace.
	cd "$root"
	mkdir .before
	pivot_root . .before
	exec chroot . /usr/bin/env -i HOME=/root LANG=C.UTF-8 TERM="${TERM-dumb}" \
		PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		/bin/bash -euc 'umount --lazy /.before; rmdir /.before; mount --make-rshared /; cd; "$@"' bare "$@"
}
if [ -n "${BASE-}" ]; then enter "$@"; fi

# shellcheck source=/dev/null
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
include=$(echo "ca-certificates $packages" | xargs | tr ' ' ,)
base=$PWD/bin/.bare/$release-${include//,/+} # mount(8) splits options at commas
mkdir -p bin/.bare
if [ ! -d "$base" ]; then
	hack/host-tools.sh --bare >&2
	made=$(mktemp --directory "$PWD/bin/.bare/made.XXXXXX")
	mmdebstrap --quiet --variant=minbase --include="$include" "$release" "$made" >&2
	mv --no-target-directory "$made" "$base"
fi
layers=$(mktemp --directory "$PWD/bin/.bare/run.XXXXXX")
trap 'rm -rf --one-file-system "$layers"' EXIT
mkdir "$layers"/{upper,work,root}
BASE=$base LENT=$(printf '%s %s\n' ${lent[@]+"${lent[@]}"}) \
	unshare --mount --propagation private --pid --fork --kill-child "$0" -- "$layers" "$@"
