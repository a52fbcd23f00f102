#!/bin/sh
# Sees to the programs that the local driver and the tests start: it lists those that are
# missing with the Debian packages that have them and, as root on Debian, installs them with
# apt-get. NO_INSTALL=1 or --list only lists; then, and where it cannot install, it fails.
#
# --demo stands for what make demo needs alone. More programs: --race the C compiler that
# the race detector needs, --ui the browser for the tests of the status page, --vm the
# programs with which make test-vm boots a Debian kernel, --metrics those that test the
# alerts, --docs the container runtime that docs/containers.md uses, --cluster the runtimes
# of test/cluster, --docker the engines of test/docker, --bare what makes a bare Debian,
# --emulated the processors of make test-emulated.
set -eu

asked=" $* " missing=
asks() { case $asked in *" $1 "*) ;; *) return 1 ;; esac }
need() { # program package
	if ! PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null 2>&1; then
		echo "host-tools: $1 is missing (package $2)" >&2
		case " $missing " in *" $2 "*) ;; *) missing="$missing $2" ;; esac
	fi
}
check() {
	missing=
	need mkfs.ext4 e2fsprogs
	need e2fsck e2fsprogs
	need resize2fs e2fsprogs
	need losetup mount
	need unshare util-linux
	need findmnt util-linux
	if ! asks --demo; then
		need mkfs.xfs xfsprogs
		need mkfs.btrfs btrfs-progs
		need systemd-analyze systemd
	fi
	if asks --race; then
		need gcc gcc
		[ -e /usr/include/stdlib.h ] || need cc-headers libc6-dev
	fi
	if asks --ui; then need chromium chromium; fi
	if asks --metrics; then need promtool prometheus; fi
	if asks --docs || asks --cluster || asks --docker; then
		need runc runc
		[ -e /bin/busybox ] || need busybox busybox-static
	fi
	if asks --docs || asks --docker; then need podman podman; fi
	if asks --docs; then need curl curl; fi
	if asks --cluster; then
		need containerd containerd
		need ctr containerd
	fi
	if asks --docker; then
		need dockerd docker.io
		need docker docker.io
		need docker-compose docker-compose
		need tini tini
	fi
	if asks --vm; then
		need qemu-system-x86_64 qemu-system-x86
		need cpio cpio
		need depmod kmod
		need dpkg-deb dpkg
	fi
	if asks --emulated; then
		need qemu-aarch64 qemu-user
		need qemu-arm qemu-user
		need qemu-s390x qemu-user
	fi
	if asks --bare; then need mmdebstrap mmdebstrap; fi
	[ -z "$missing" ]
}

check && exit 0
if asks --list || [ -n "${NO_INSTALL-}" ] || [ "$(id -u)" != 0 ] || [ ! -e /etc/debian_version ]; then
	echo "host-tools: install them with: apt-get install -y$missing (elsewhere than on Debian packages may have other names)" >&2
	exit 1
fi
echo "host-tools: installing$missing (NO_INSTALL=1 only lists)" >&2
apt-get update -q
# shellcheck disable=SC2086 # the list is to be split
DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
check || { echo "host-tools: still missing after the installation:$missing" >&2; exit 1; }
