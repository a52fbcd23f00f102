#!/bin/sh
# Prints the coverage of each package (--plan: of none), and fails unless the tests of
# pkg/manager/plan cover each of its statements; the shortest walk of its
# states (-short) has to suffice for that.
set -eu
cd "$(dirname "$0")/.."

profile=$(mktemp)
trap 'rm -f "$profile"' EXIT
[ "${1-}" = --plan ] || go test -count=1 -cover ./cmd/... ./internal/... ./pkg/... | awk '/coverage:/ { for (i = 1; i < NF; i++) if ($i == "coverage:") printf "%7s  %s\n", $(i+1), ($1 == "ok" ? $2 : $1) }'
go test -short -count=1 -coverprofile="$profile" ./pkg/manager/plan >/dev/null
uncovered=$(awk 'NR > 1 && $NF == 0 && $(NF-1) > 0 { print "  " $1 }' "$profile")
if [ -n "$uncovered" ]; then
	echo "pkg/manager/plan must be covered to the last statement; these are not:" >&2
	echo "$uncovered" >&2
	exit 1
fi
