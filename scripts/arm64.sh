#!/bin/sh
# Tests the packages that have arm64 assembly, natively or in an emulator of a
# cortex-a72, where instructions that not every arm64 machine has are illegal.
# Performance tests and slow tests that add nothing for the assembly are skipped.
#
# Without an emulator (Debian: apt-get install qemu-user) it prints a notice and does
# nothing. In CI, as root, it installs the emulator.
#   scripts/arm64.sh          all tests
#   scripts/arm64.sh short    only the kernels
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
unset LORAFUSE_LONG || true
gemm=./backend/cpu/internal/gemm
vec=./internal/vec

if [ "$($go env GOHOSTARCH)" = arm64 ]; then
	exec $go test ./backend/cpu/... ./tensor
fi
find_qemu() { command -v qemu-aarch64 || command -v qemu-aarch64-static; }
if ! find_qemu >/dev/null && [ "${CI:-}" = true ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive timeout 600 apt-get install -qq -y --no-install-recommends qemu-user >/dev/null || true
fi
qemu=$(find_qemu || true)
if [ -z "$qemu" ]; then
	echo "SKIPPED: the arm64 assembly is not tested, there is no qemu-aarch64 here"
	exit 0
fi
export GOARCH=arm64 GOOS=linux CGO_ENABLED=0
run() { # run ARGUMENTS of go test
	echo "in $qemu: $*"
	$go test -timeout 30m -exec "$qemu -cpu cortex-a72" "$@"
}
slow='Alloc|TestConcurrent|TestQuantizedEqualsWidened|TestNarrowingIsThatOfPyTorch|TestLargeArrays'
run -skip "$slow" $gemm $vec ./tensor -rapid.checks=20
[ "${1:-}" != short ] || exit 0
run -run 'TestConformance/(value|grad)' ./backend/cpu
