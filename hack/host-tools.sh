#!/bin/sh
# Lists missing programs that the local driver and the tests start, and the
# Debian packages that have them. --install installs them with apt-get. More
# programs: --race the C compiler that the race detector needs, --ui the browser
# for the tests of the status page, --vm the programs with which make test-vm
# boots a Debian kernel, --metrics those that test the alerts, --docs the
# container runtime that docs/containers.md uses, --cluster the runtimes of
# test/cluster, --docker the engines of test/docker.
set -eu

missing=
need() { # program package
	if ! PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1; then
		echo "host-tools: $1 is missing (package $2)" >&2
		case " $missing " in *" $2 "*) ;; *) missing="$missing $2" ;; esac
	fi
}
need mkfs.xfs xfsprogs
need mkfs.ext4 e2fsprogs
need e2fsck e2fsprogs
need resize2fs e2fsprogs
need mkfs.btrfs btrfs-progs
need losetup util-linux
need unshare util-linux
need findmnt util-linux
need systemd-analyze systemd
case " $* " in *" --race "*)
	need gcc gcc
	[ -e /usr/include/stdlib.h ] || need cc-headers libc6-dev
	;;
esac
case " $* " in *" --ui "*) need chromium chromium ;; esac
case " $* " in *" --metrics "*) need promtool prometheus ;; esac
case " $* " in *" --docs "*)
	need podman podman
	need runc runc
	need curl curl
	[ -e /bin/busybox ] || need busybox busybox-static
	;;
esac
case " $* " in *" --cluster "*)
	need runc runc
	need containerd containerd
	need ctr containerd
	[ -e /bin/busybox ] || need busybox busybox-static
	;;
esac
case " $* " in *" --docker "*)
	need dockerd docker.io
	need docker docker.io
	need docker-compose docker-compose
	need tini tini
	need podman podman
	need runc runc
	[ -e /bin/busybox ] || need busybox busybox-static
	;;
esac
case " $* " in *" --vm "*)
	need qemu-system-x86_64 qemu-system-x86
	need cpio cpio
	need depmod kmod
	need dpkg-deb dpkg
	;;
esac

[ -n "$missing" ] || exit 0
case " $* " in
*" --install "*) ;;
*)
	echo "host-tools: install them with: apt-get install -y$missing" >&2
	exit 1
	;;
esac
apt-get update
# shellcheck disable=SC2086 # the list is to be split
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
for arg in "$@"; do # again, without --install: is everything there?
	shift
	[ "$arg" = --install ] || set -- "$@" "$arg"
done
exec "$0" "$@"
