#!/bin/bash
# Writes an image of the program alone as an OCI archive, image.sh PROGRAM
# ARCHITECTURE VERSION SECONDS ARCHIVE: for podman load, skopeo and ctr. The same
# program, version and time (of the commit, since 1970) give the same bytes, and it
# contacts no registry. The image of deploy/Dockerfile adds the programs that some
# kinds of volumes need.
set -euo pipefail
program=$1 arch=$2 version=$3 seconds=$4 archive=$(realpath -m "$5")
name=localhost/csi-volmgr:${version//[^A-Za-z0-9._-]/-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
platform="\"architecture\":\"$arch\",\"os\":\"linux\""
[ "$arch" != arm ] || platform+=',"variant":"v7"'
pack() { tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$seconds" --format=gnu -C "$1" -c .; }

mkdir -p "$work"/root/{tmp,run,etc/csi-volmgr,usr/local/bin,var/lib/{kubelet,csi-volmgr}} "$work"/oci/blobs/sha256
chmod 1777 "$work/root/tmp"
install -m 755 "$program" "$work/root/usr/local/bin/csi-volmgr"
blob() { # makes a file a blob; prints its digest and size in the form of a descriptor
	local sum size
	sum=$(sha256sum <"$1") size=$(stat -c %s "$1")
	mv "$1" "$work/oci/blobs/sha256/${sum%% *}"
	printf '"digest":"sha256:%s","size":%d' "${sum%% *}" "$size"
}
pack "$work/root" >"$work/layer"
diff=$(sha256sum <"$work/layer")
layer=$(blob "$work/layer")
cat >"$work/config" <<END
{$platform,"created":"$(date -u -d "@$seconds" +%Y-%m-%dT%H:%M:%SZ)","config":{"Entrypoint":["/usr/local/bin/csi-volmgr"],"Env":["PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],"WorkingDir":"/","Labels":{"org.opencontainers.image.version":"$version"}},"rootfs":{"type":"layers","diff_ids":["sha256:${diff%% *}"]}}
END
config=$(blob "$work/config")
cat >"$work/manifest" <<END
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json",$config},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar",$layer}]}
END
manifest=$(blob "$work/manifest")
cat >"$work/oci/index.json" <<END
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json",$manifest,"platform":{$platform},"annotations":{"org.opencontainers.image.ref.name":"$name"}}]}
END
echo '{"imageLayoutVersion":"1.0.0"}' >"$work/oci/oci-layout"
mkdir -p "$(dirname "$archive")"
pack "$work/oci" >"$archive"
echo "$name"
