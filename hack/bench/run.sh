#!/bin/bash
# Builds the harness and runs a suite in a mount namespace of its own.
#   hack/bench/run.sh --suite=quick --reps=1
#   hack/bench/run.sh --suite=goals,disk --reps=5 --out=results.jsonl
#   hack/bench/run.sh --table=results.jsonl
set -euo pipefail
cd "$(dirname "$0")"
bin=$PWD/../../bin/bench
mkdir -p "$bin"
go build -tags grpcnotrace -o "$bin" ./cmd/...
if [[ "$*" != *--systems=* || "$*" == *kubeletbench* ]]; then # it takes longer than all others
	(cd kubelet && go build -o "$bin/kubeletbench" .)
fi
(cd ../.. && CGO_ENABLED=0 go build -tags grpcnotrace -o "$bin/csi-volmgr" ./cmd/csi-volmgr)
exec unshare -m --propagation private "$bin/bench" --bin="$bin" "$@"
