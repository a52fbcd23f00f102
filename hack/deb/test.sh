#!/bin/bash
# Installs the package in a bare Debian, types the first command of the pages, mounts volumes,
# upgrades it, tries to remove it, empties the node, removes and purges it; then upgrades from
# a package that shipped its configuration, and installs beside an operator's files.
# inside.sh is what runs in there.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "deb-test: it mounts file systems: run this as root" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for v in v1 v2; do make --no-print-directory -s build VERSION=$v BIN="$work/$v" >/dev/null; done
for v in v1 v2 v1/again; do hack/deb/build.sh "$work/${v%/*}" "${v%/*}" "$work/debs/$v" >/dev/null; done
cmp "$work"/debs/v1/*.deb "$work"/debs/v1/again/*.deb # one commit, the same bytes

# A package as it was before: its configuration is a conffile, and turns nothing on.
dpkg-deb -R "$work"/debs/v1/*.deb "$work/old"
install -D -m 644 deploy/config/config.yaml "$work/old/etc/csi-volmgr/config.yaml"
echo /etc/csi-volmgr/config.yaml >>"$work/old/DEBIAN/conffiles"
sed -i 's/^Version: .*/Version: 0.9/' "$work/old/DEBIAN/control"
sed -i '/first-config/d' "$work/old/DEBIAN/postinst"
dpkg-deb --root-owner-group -Zgzip --build "$work/old" "$work/debs" >/dev/null
cp "$work"/debs/v1/*.deb "$work"/debs/v2/*.deb -t "$work/debs"

hack/bare.sh --packages "docker.io podman runc busybox-static curl" --read-only "$work/debs:/debs" --read-only "$PWD:/tree" -- \
	/tree/hack/deb/inside.sh
