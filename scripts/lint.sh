#!/bin/sh
# Runs gofmt, go vet and staticcheck for every combination of build tags and systems
# for which the code has files.
#   scripts/lint.sh short    without the tag purego, on only one other system, and with
#                            the tags of GPUs only go vet
#   scripts/lint.sh rest     only what short leaves out
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
staticcheck="$go run honnef.co/go/tools/cmd/staticcheck@v0.8.2"

unformatted=$(gofmt -l $(git ls-files '*.go'))
if [ -n "$unformatted" ]; then
	echo "not gofmt'd: $unformatted"
	exit 1
fi
systems="darwin/arm64 windows/amd64 linux/arm64 linux/386"
case ${1:-} in
short) systems="darwin/arm64" ;;
rest) systems="windows/amd64 linux/arm64 linux/386" ;;
esac
if [ "${1:-}" != rest ]; then
	echo "vet and staticcheck, tags: none"
	$go vet ./...
	$staticcheck ./...
fi
if [ "${1:-}" != short ]; then
	pure=$(git grep -l '^//go:build.*purego' -- '*.go' | xargs -n 1 dirname | sort -u | sed 's|^|./|')
	echo "vet and staticcheck, tags: purego"
	# shellcheck disable=SC2086 # words
	$go vet -tags purego $pure && $staticcheck -tags purego $pure
fi
echo "vet and staticcheck, tags: mpi${1:+, $1}"
$go vet -tags mpi ./dist/mpi ./cmd/lorafuse
[ "${1:-}" = short ] || $staticcheck -tags mpi ./dist/mpi ./cmd/lorafuse
for system in $systems; do
	echo "vet for $system"
	CGO_ENABLED=0 GOOS=${system%/*} GOARCH=${system#*/} $go vet ./...
done
if [ -n "${CUDA_HOME:-}" ] || [ -d output/cuda ]; then
	echo "vet and staticcheck, tags: cuda${1:+, $1}"
	eval "$(sh scripts/cuda_env.sh)"
	$go vet -tags cuda ./backend/... ./kernels/... ./cmd/lorafuse/cli ./cmd/gpubench
	[ "${1:-}" = short ] || $staticcheck -tags cuda ./backend/... ./kernels/... ./cmd/lorafuse/cli ./cmd/gpubench
else
	echo "no vet for tags: cuda, which needs CUDA's headers: make cuda-kernels installs them"
fi
if command -v clang-19 >/dev/null && [ -e /usr/include/GNUstep/Foundation/Foundation.h ]; then
	echo "vet and staticcheck, tags: metal metalfake${1:+, $1}"
	export CGO_ENABLED=1 CC=clang-19 CXX=clang++-19
	$go vet -tags 'metal metalfake' ./backend/... ./cmd/lorafuse/cli
	[ "${1:-}" = short ] || $staticcheck -tags 'metal metalfake' ./backend/... ./cmd/lorafuse/cli
else
	echo "no vet for tags: metal metalfake, which need clang-19 and GNUstep: make metal-sim installs them"
fi
(cd tools && $go vet ./...)
