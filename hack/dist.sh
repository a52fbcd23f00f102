#!/bin/bash
# Builds a release, dist.sh VERSION DIRECTORY: for each architecture
# an archive with the program, its units, manual pages and completion, an image of
# the program alone (an OCI archive), and their checksums. It builds the commit,
# without uncommitted changes, twice, in two places; if the same commit, version and Go
# do not give the same bytes, it keeps nothing. ARCHES replaces amd64 and arm64; arm (v7),
# ppc64le, riscv64 and s390x are built as well.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$1 out=$2
epoch=$(git log -1 --format=%ct)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022

build() { # a directory to build in, and one for the archives
	mkdir -p "$1" "$2"
	git archive HEAD | tar -x -C "$1"
	(
		cd "$1"
		export CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOAMD64=v1 GOARM64=v8.0 GOARM=7
		host=built/$(go env GOARCH)
		for arch in ${ARCHES:-amd64 arm64} "${host#built/}"; do
			[ -e "built/$arch" ] || GOARCH=$arch go build -trimpath -tags grpcnotrace -ldflags "-X main.release=$version" -o "built/$arch" ./cmd/csi-volmgr
			# See build in the Makefile; a template in a command would have the same effect.
			if go tool nm "built/$arch" | grep -F 'text/template.(*state).evalField' >"$work/templates"; then
				echo "dist: the program calls methods by name, so the linker keeps every method; find the import that does" >&2
				exit 1
			fi
		done
		for arch in ${ARCHES:-amd64 arm64}; do
			stage=stage/csi-volmgr-$version-linux-$arch
			mkdir -p "$stage"
			cp "built/$arch" "$stage/csi-volmgr"
			cp -r LICENSE README.md CHANGELOG.md deploy examples "$stage"
			# The manual pages and completion are the same on every architecture.
			hack/man.sh "$host" "$stage/man"
			mkdir "$stage/completion"
			for shell in bash zsh fish; do "$host" completion "$shell" >"$stage/completion/$shell"; done
			tar -C stage --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" -c "${stage#stage/}" | gzip -n >"$2/${stage#stage/}.tar.gz"
			hack/image.sh "built/$arch" "$arch" "$version" "$epoch" "$2/${stage#stage/}.oci.tar" >/dev/null
		done
	)
	(cd "$2" && sha256sum -- *.tar.gz *.oci.tar >SHA256SUMS)
}

build "$work/one" "$work/first"
build "$work/another-place" "$work/second"
if ! diff "$work/first/SHA256SUMS" "$work/second/SHA256SUMS"; then
	echo "dist: two builds of one commit differ" >&2
	exit 1
fi
mkdir -p "$out"
cp "$work"/first/* "$out"
(cd "$out" && sha256sum --check --quiet SHA256SUMS && cat SHA256SUMS)
