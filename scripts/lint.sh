#!/bin/sh
# gofmt, go vet and staticcheck on every combination of build tags and systems
# that the code has files for.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
staticcheck="$go run honnef.co/go/tools/cmd/staticcheck@v0.8.2"

unformatted=$(gofmt -l $(git ls-files '*.go'))
if [ -n "$unformatted" ]; then
	echo "not gofmt'd: $unformatted"
	exit 1
fi
for tags in "" purego; do
	echo "vet and staticcheck, tags: ${tags:-none}"
	$go vet -tags "$tags" ./...
	$staticcheck -tags "$tags" ./...
done
for system in darwin/arm64 windows/amd64 linux/arm64 linux/386; do
	echo "vet for $system"
	CGO_ENABLED=0 GOOS=${system%/*} GOARCH=${system#*/} $go vet ./...
done
(cd tools && $go vet ./...)
