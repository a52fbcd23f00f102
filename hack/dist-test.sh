#!/bin/bash
# Builds what hack/dist.sh builds for this machine twice, compares the two, and runs the
# image: the daemon in a container mounts a pod's volumes and ends when it is
# stopped. podman's storage is a temporary directory; it contacts no registry.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "dist-test: it runs a privileged container: run this as root" >&2; exit 1; }
work=$(mktemp -d)
volmgr() { podman --root "$work/root" --runroot "$work/run" --storage-driver vfs "$@"; }
finish() {
	volmgr rm --force --time 5 volmgr >/dev/null 2>&1 || true
	volmgr rmi --all --force >/dev/null 2>&1 || true
	rm -rf "$work"
}
trap finish EXIT
fail() { echo "dist-test: $*" >&2; volmgr logs volmgr 2>&1 | tail -n 20 >&2; exit 1; }

version=v0.0.0-test
ARCHES=$(go env GOARCH) hack/dist.sh "$version" "$work/dist"
image=localhost/csi-volmgr:$version
volmgr load --quiet --input "$work"/dist/*.oci.tar
volmgr run --detach --name volmgr --privileged --network none --runtime runc --ulimit nofile=1024 --ulimit nproc=1024 \
	"$image" run --node-name=n1 --storage-id=n1 --http-address=off >/dev/null
inside() { volmgr exec --interactive volmgr csi-volmgr "$@"; }
for _ in $(seq 600); do
	inside version | grep '^daemon: .*none answers' >/dev/null || break
	sleep 0.1
done
inside version | grep "^daemon:  $version .*node n1" || fail "the daemon does not answer: $(inside version)"
inside apply -f - <<'END'
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {level: low}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: app, image: app, volumeMounts: [{name: settings, mountPath: /s}, {name: memory, mountPath: /m}]}
  volumes:
  - {name: settings, configMap: {name: settings}}
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
END
inside wait pod web --for=verified --timeout=1m | grep ': 2 volumes verified' || fail "the volumes are not mounted"
inside delete pod web
inside wait pod web --for=unmounted --timeout=1m
volmgr stop --time 60 volmgr >/dev/null
code=$(volmgr inspect --format '{{.State.ExitCode}}' volmgr)
[ "$code" = 0 ] || fail "the daemon ended with $code"
echo "dist-test: two builds of one commit are the same, and the image runs"
