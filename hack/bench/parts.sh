#!/bin/bash
# Runs the Go benchmarks of the parts and compares them with hack/bench/baseline.txt.
#   hack/bench/parts.sh            compare
#   hack/bench/parts.sh --write    make what is measured now the baseline
# Times of one machine say nothing of another's, or of the same while others use
# it: bytes and allocations do. Write a baseline on the machine that you compare on.
set -euo pipefail
cd "$(dirname "$0")/../.."
baseline=hack/bench/baseline.txt
now=bin/bench/parts.txt
mkdir -p bin/bench
go test -run '^$' -bench . -benchmem -benchtime "${BENCHTIME:-100ms}" -count "${COUNT:-6}" -timeout 30m \
	./internal/wants/content ./pkg/manager/... ./internal/journal ./internal/host/mount ./internal/kinds/payload ./internal/kinds/poddir ./internal/host/isolate ./internal/serve/recorder ./internal/serve/server ./internal/wants/source ./internal/wants/manifest ./internal/cluster/token |
	grep -E '^(goos|goarch|pkg|cpu|Benchmark)' >"$now"
if [ "${1:-}" = --write ]; then
	cp "$now" "$baseline"
	exit
fi
exec go tool -modfile=hack/tools/go.mod benchstat "$baseline" "$now"
