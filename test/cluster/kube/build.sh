#!/bin/sh
# Builds etcd, kube-apiserver, kube-controller-manager and kube-scheduler, one binary, into $1.
# Cold about 190 s on two idle cores (91 MB of modules, 2.5 GB of build cache); when nothing changed, 1 s.
set -eu
out=$1
mkdir -p "$(dirname "$out")"
cd "$(dirname "$0")"
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
# Not optimised: a third less to compile, and the servers start 0.7 s later.
CGO_ENABLED=0 exec go build -trimpath -buildvcs=false '-gcflags=all=-N -l' \
	-ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" -o "$out" .
