#!/bin/bash
# build.sh OUT: makes OUT/vmlinuz and OUT/base.cpio, a root file system for an
# initramfs, from Debian packages. apt fetches them and this script unpacks them: it
# installs none and runs none of their scripts. It makes the files once; make clean
# removes them, for a newer kernel for example.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
mkdir -p "$1"
cd "$1"
out=$PWD

guest="busybox-static kmod udev systemd util-linux mount iproute2 netbase attr secilc quota
	e2fsprogs xfsprogs open-iscsi multipath-tools nfs-common nfs-kernel-server rpcbind"
# Packages that only maintainer scripts and unused parts of those need.
skip='^(dpkg|tar|debconf|perl.*|libperl.*|.*-perl|python3.*|libpython3.*|usrmerge|init-system-helpers|sysvinit-utils
|passwd|adduser|ucf|sensible-utils|lsb-base|media-types|readline-common|libicu.*|gcc-.*-base|libsemanage.*|libpam-modules.*
|libaudit-common|libsqlite3-0|libncursesw6|libdb5.3|libgdbm.*|libstdc..6|util-linux-extra|libldap.*)$'
skip=${skip//$'\n'/}

key=$(cat "$here/build.sh" "$here/init" "$here/selinux.cil" | sha256sum)
if [ -e key ] && [ "$(cat key)" = "$key" ]; then exit 0; fi

apt-cache show linux-image-amd64 >/dev/null 2>&1 || apt-get update -q
kernel=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
[ -n "$kernel" ] || { echo "build.sh: apt knows no linux-image-amd64; this needs Debian and its package lists (apt-get update)" >&2; exit 1; }
release=${kernel#linux-image-}
# shellcheck disable=SC2086 # lists are to be split
closure=$(apt-get -o Dir::State::status=/dev/null -o APT::Install-Recommends=false install -s $guest | awk '/^Inst/ {print $2}' | grep -vE "$skip")
rm -rf key root kernel

mkdir -p debs root kernel
(
	cd debs
	want=
	for p in $closure $kernel; do ls "${p}"_*.deb >/dev/null 2>&1 || want="$want $p"; done
	# shellcheck disable=SC2086
	if [ -n "$want" ]; then
		apt-get -q -o APT::Sandbox::User=root download $want >/dev/null ||
			{ apt-get update -q; apt-get -q -o APT::Sandbox::User=root download $want >/dev/null; }
	fi
)

for p in $closure; do
	dpkg-deb --fsys-tarfile debs/"${p}"_*.deb | tar -x -C root --no-same-owner \
		--exclude=./usr/share/{doc,man,locale,info,bash-completion,lintian,zsh,i18n,gcc,pam-configs,polkit-1,dbus-1} \
		--exclude=./usr/lib/udev/hwdb.d --exclude=./usr/lib/x86_64-linux-gnu/gconv --exclude=./usr/lib/locale --exclude=./usr/include
done
dpkg-deb --fsys-tarfile debs/"${kernel}"_*.deb | tar -x -C kernel ./boot ./lib
cp "kernel/boot/vmlinuz-$release" vmlinuz

# The modules that the tests use, and what those depend on.
modules="loop ext4 xfs fuse 9p 9pnet_virtio virtio_pci nfs nfsv3 nfsv4 nfsd iscsi_tcp iscsi_target_mod target_core_mod target_core_file target_core_iblock
	scsi_transport_fc sd_mod sg dm_mod dm_multipath scsi_dh_alua dm_round_robin dm_service_time dm_queue_length veth
	libfc libfcoe fcoe tcm_fc quota_v2 autofs4 overlay crc32c_generic crc32c_intel libcrc32c
	cryptomgr sha256_generic md5 chacha_generic"
depmod -b kernel "$release"
for m in $modules; do
	modprobe -d "$out/kernel" -S "$release" --show-depends --ignore-install "$m" 2>/dev/null | awk '/^insmod/ {print $2}' || true
done | sort -u | while read -r file; do
	to=root/${file#"$out/kernel/"}
	mkdir -p "$(dirname "$to")"
	cp "$file" "$to"
done
cp kernel/lib/modules/"$release"/modules.{builtin,order,builtin.modinfo} "root/lib/modules/$release/"
depmod -b root "$release"

mkdir -p root/{proc,sys,dev,run,tmp,root,mnt,payload,etc/iscsi,etc/target,etc/multipath,var/lib/nfs/{sm,v4recovery,rpc_pipefs},var/lib/iscsi}
for applet in $(root/bin/busybox --list); do
	for dir in bin sbin usr/bin usr/sbin; do [ ! -e "root/$dir/$applet" ] || continue 2; done
	ln -s busybox "root/bin/$applet"
done
cat > root/etc/passwd <<-'PASSWD'
	root:x:0:0:root:/root:/bin/sh
	_rpc:x:101:65534::/run/rpcbind:/bin/false
	statd:x:102:65534::/var/lib/nfs:/bin/false
	nobody:x:65534:65534::/:/bin/false
PASSWD
printf '%s\n' root:x:0: tty:x:5: disk:x:6: lp:x:7: dialout:x:20: cdrom:x:24: tape:x:26: audio:x:29: video:x:44: \
	kvm:x:104: render:x:105: input:x:106: kmem:x:15: sgx:x:107: nogroup:x:65534: > root/etc/group
printf '127.0.0.1 localhost\n::1 localhost\n' > root/etc/hosts
printf '%s: files\n' passwd group hosts services protocols netgroup > root/etc/nsswitch.conf
echo 'InitiatorName=iqn.2024-01.test.csi-volmgr:initiator' > root/etc/iscsi/initiatorname.iscsi
ln -sf /proc/self/mounts root/etc/mtab
ln -sfn /run root/var/run
: > root/etc/exports
: > root/etc/fstab
install -m 0755 "$here/init" root/init

# The policy, with 1024 categories, compiled by the secilc that was unpacked.
categories=$(seq -f 'c%g' 0 1023)
{ seq -f '(category c%g)' 0 1023; echo "(categoryorder (${categories//$'\n'/ }))"; } > categories
sed -e '/@CATEGORIES@/{r categories' -e 'd}' "$here/selinux.cil" > selinux.full.cil
LD_LIBRARY_PATH=root/lib/x86_64-linux-gnu:root/usr/lib/x86_64-linux-gnu \
	root/usr/bin/secilc -M true -c 33 -o root/etc/selinux.policy -f /dev/null selinux.full.cil

(cd root && find . | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0) > base.cpio
rm -rf root kernel
echo "$key" > key
