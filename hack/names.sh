#!/bin/bash
# Prints the tests and subtests that have passed in the output BEFORE of go test -json and not in the
# outputs AFTER, and fails if there is one: names.sh BEFORE AFTER... The names of samples are numbers, and
# count as one.
set -euo pipefail
names() {
	cat "$@" | sed -nE 's/.*"Action":"pass","Package":"([^"]*)","Test":"([^"]*)".*/\1 \2/p' | sed -E 's#/[0-9]+$#/N#' | sort -u
}
before=$1
shift
comm -23 <(names "$before") <(names "$@") | { ! grep .; }
