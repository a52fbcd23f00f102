#!/bin/sh
# Runs each fuzz target of the module for the given time.
set -eu
cd "$(dirname "$0")/.."

grep -rlE --include='*_test.go' '^func Fuzz[A-Z]' cmd internal pkg test | while read -r file; do
	grep -oE '^func Fuzz[A-Za-z0-9_]+' "$file" | while read -r _ target; do
		echo "== $target ($(dirname "$file"))"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$1" "./$(dirname "$file")" </dev/null
	done || exit 1
done
