#!/bin/bash
# Compares the tree with an earlier revision, by the quick suite in one run:
#   hack/bench/before.sh REVISION [--reps=5 ...]
# The earlier programs are the systems before-volmgr and before-daemon in the tables.
set -euo pipefail
cd "$(dirname "$0")"
revision=$(git rev-parse --verify "$1^{commit}")
shift
bin=$PWD/../../bin/bench
before=$bin/before
tree=$(mktemp -d)
trap 'git worktree remove --force "$tree"' EXIT
git worktree add --quiet --detach "$tree" "$revision"
mkdir -p "$before"
(cd "$tree/hack/bench" && go build -tags grpcnotrace -o "$before/volmgrbench" ./cmd/volmgrbench)
(cd "$tree" && CGO_ENABLED=0 go build -tags grpcnotrace -o "$before/csi-volmgr" ./cmd/csi-volmgr)
./run.sh --suite=quick --retries=0 --quiet-wait=600ms --systems="\
volmgr=volmgrbench,before-volmgr=$before/volmgrbench,\
daemon=volmgrbench --via=daemon --program=@csi-volmgr,\
before-daemon=$before/volmgrbench --via=daemon --program=$before/csi-volmgr" "$@"
