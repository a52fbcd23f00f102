#!/bin/sh
# Builds external-attacher, external-provisioner, external-resizer, external-snapshotter and its
# snapshot-controller into the directory $1, under the names that their projects give them.
set -eu
out=$1
mkdir -p "$out"
cd "$(dirname "$0")"
# Not optimised, as the control plane in ../kube is.
CGO_ENABLED=0 exec go build -trimpath -buildvcs=false '-gcflags=all=-N -l' -ldflags '-s -w' -o "$out/" tool
