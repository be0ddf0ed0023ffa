#!/bin/sh
# Runs gofmt, go vet and staticcheck for every combination of build tags and systems
# for which the code has files.
#   scripts/lint.sh short    without the tag purego, on only one other system, and with
#                            the tag cuda only go vet
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
staticcheck="$go run honnef.co/go/tools/cmd/staticcheck@v0.8.2"

unformatted=$(gofmt -l $(git ls-files '*.go'))
if [ -n "$unformatted" ]; then
	echo "not gofmt'd: $unformatted"
	exit 1
fi
tags_of_all="purego" systems="darwin/arm64 windows/amd64 linux/arm64 linux/386"
if [ "${1:-}" = short ]; then
	tags_of_all="" systems="darwin/arm64"
fi
for tags in "" $tags_of_all; do
	echo "vet and staticcheck, tags: ${tags:-none}"
	$go vet -tags "$tags" ./...
	$staticcheck -tags "$tags" ./...
done
for system in $systems; do
	echo "vet for $system"
	CGO_ENABLED=0 GOOS=${system%/*} GOARCH=${system#*/} $go vet ./...
done
if [ -n "${CUDA_HOME:-}" ] || [ -d output/cuda ]; then
	echo "vet and staticcheck, tags: cuda${1:+, vet alone}"
	eval "$(sh scripts/cuda_env.sh)"
	$go vet -tags cuda ./backend/... ./kernels/... ./cmd/lorafuse/cli ./cmd/gpubench
	[ "${1:-}" = short ] || $staticcheck -tags cuda ./backend/... ./kernels/... ./cmd/lorafuse/cli ./cmd/gpubench
else
	echo "no vet for tags: cuda, which needs CUDA's headers: make cuda-kernels installs them"
fi
if command -v clang-19 >/dev/null && [ -e /usr/include/GNUstep/Foundation/Foundation.h ]; then
	echo "vet and staticcheck, tags: metal metalfake${1:+, vet alone}"
	export CGO_ENABLED=1 CC=clang-19 CXX=clang++-19
	$go vet -tags 'metal metalfake' ./backend/... ./cmd/lorafuse/cli
	[ "${1:-}" = short ] || $staticcheck -tags 'metal metalfake' ./backend/... ./cmd/lorafuse/cli
else
	echo "no vet for tags: metal metalfake, which need clang-19 and GNUstep: make metal-sim installs them"
fi
(cd tools && $go vet ./...)
