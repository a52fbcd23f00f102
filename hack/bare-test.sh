#!/bin/bash
# Types the README's two commands in a clone on a bare Debian that has Go, git, make and
# ca-certificates: the demo whole, and the tests up to the first of each package. Go's module
# and build caches are lent to it, and the clone has this one's path, which the cache asks for.
set -euo pipefail
cd "$(dirname "$0")/.."

# What every package stands for with its first test, as a flag of go test.
first=$(go list -f '{{.Dir}} {{join .TestGoFiles " "}} {{join .XTestGoFiles " "}}' ./... | while read -r dir files; do
	[ -z "$files" ] || (cd "$dir" && grep -hoE '^func Test[A-Z0-9][A-Za-z0-9_]*' $files | grep -vx 'func TestMain' | sed -n '1s/func //p')
done | sort -u | paste -sd '|')
packages=$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | grep -c .)

# Runs in the bare system; see the end for its arguments.
inside() {
	fail() { echo "bare-test: $*" >&2; exit 1; }
	installed() { sha256sum /var/lib/dpkg/status; }
	git clone -q /mnt/csi-volmgr "$3"
	cd "$3"
	mapfile -t commands < <(sed -n '/^## Two commands/,/^## Five/{s/^\(make [a-z-]*\)  *#.*/\1/p}' README.md)
	[ "${commands[*]}" = "make demo make test" ] || fail "the README's two commands are: ${commands[*]}"
	before=$(installed)

	echo "bare-test: ${commands[0]}"
	${commands[0]} >demo.out 2>&1 || { cat demo.out; fail "${commands[0]} has failed"; }
	tail -n 1 demo.out | grep -E '== Done in [0-9]+ seconds' || fail "${commands[0]} ends with: $(tail -n 1 demo.out)"
	[ "$(installed)" = "$before" ] || fail "${commands[0]} has installed something"

	echo "bare-test: NO_INSTALL=1 ${commands[1]}"
	! NO_INSTALL=1 ${commands[1]} >listed.out 2>&1 || fail "nothing is missing here"
	grep 'apt-get install -y.* xfsprogs' listed.out || fail "it does not name what to install: $(cat listed.out)"
	[ "$(installed)" = "$before" ] || fail "NO_INSTALL=1 has installed something"

	echo "bare-test: ${commands[1]}"
	export GOFLAGS="-short -ldflags=-s -run=^($1)\$"
	{
		read -r line
		[ "$(installed)" = "$before" ] || fail "something was installed before ${commands[1]} said so: $line"
		echo "$line"
		cat
	} < <(${commands[1]} 2>&1; echo "rc=$?") | tee test.out
	[ "$(tail -n 1 test.out)" = rc=0 ] || fail "${commands[1]} has failed"
	ran=$(grep '^ok .*csi-volmgr/csi-volmgr/' test.out | grep -vc 'no tests to run')
	[ "$ran" -ge "$2" ] || fail "$ran packages had a result, of $2"
}

hack/bare.sh --packages "git make" --read-only "$(go env GOROOT):/usr/local/go" --read-only "$PWD:/mnt/csi-volmgr" \
	--bind "$(go env GOMODCACHE):/root/go/pkg/mod" --bind "$(go env GOCACHE):/root/.cache/go-build" \
	-- bash -euo pipefail -c "$(declare -f inside); inside \"\$@\"" inside "$first" "$packages" "$PWD"
echo "bare-test: both commands of the README work on a bare Debian"
