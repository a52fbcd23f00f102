#!/bin/sh
# Builds a Debian package: build.sh PROGRAM VERSION DIRECTORY. The same commit
# gives the same bytes.
set -eu
bin=$1 version=$2 out=$3
cd "$(dirname "$0")/../.."
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
arch=$(dpkg --print-architecture)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
umask 022

# A package's version begins with a digit and sorts: v1.2.3 is valid, a bare
# commit is not.
case $version in
v[0-9]*) deb=${version#v} ;;
*) deb=0~$(git log -1 --format=%cd --date=format:%Y%m%d%H%M%S).$version ;;
esac
deb=$(echo "$deb" | tr - +)

make --no-print-directory -s install BIN="$bin" VERSION="$version" DESTDIR="$stage" PREFIX=/usr >/dev/null
mkdir "$stage/DEBIAN"
cat >"$stage/DEBIAN/control" <<END
Package: csi-volmgr
Version: $deb
Architecture: $arch
Maintainer: csi-volmgr maintainers <maintainers@csi-volmgr.invalid>
Section: admin
Priority: optional
Recommends: e2fsprogs, xfsprogs, util-linux, mount
Suggests: nfs-common, open-iscsi, multipath-tools
Description: volumes of pods on a Linux node, without a kubelet
 Finds CSI drivers by their registration sockets and attaches, stages,
 publishes, grows, unpublishes, unstages and detaches the volumes of pods until
 what is mounted is what is wanted, and can say why it is not so yet.
END
# postinst writes the configuration, and only of a first installation: dpkg would give a new
# conffile to every machine whose operator has not changed the old one.
rm -r "$stage/etc/csi-volmgr"
printf '%s\n' /etc/containers/containers.conf.d/csi-volmgr.conf >"$stage/DEBIAN/conffiles"
for script in postinst prerm postrm; do install -m 755 "hack/deb/$script" "$stage/DEBIAN/$script"; done
(cd "$stage" && find etc usr -type f -exec md5sum {} + | LC_ALL=C sort -k2 >DEBIAN/md5sums)
find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

# gzip, since xz takes ten times as long to save a quarter.
mkdir -p "$out"
package=csi-volmgr_${deb}_$arch.deb
dpkg-deb --root-owner-group -Zgzip --build "$stage" "$out/$package" >/dev/null
(cd "$out" && sha256sum "$package" >"$package.sha256")
echo "$out/$package"
