#!/bin/sh
# Compiles and links the program with -tags cuda for arm64, including the trampolines of
# the shim, and runs it in an emulator without a driver.
#
# It needs the compiler for arm64 and qemu-user (Debian: gcc-aarch64-linux-gnu
# libc6-dev-arm64-cross qemu-user). In CI, as root, it installs them; otherwise it
# lists the missing ones and does nothing.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
libraries=/usr/aarch64-linux-gnu
tools() {
	command -v aarch64-linux-gnu-gcc >/dev/null && [ -e "$libraries/lib/libc.so.6" ] && qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static)
}
if [ "$($go env GOHOSTARCH)" = arm64 ]; then
	echo "SKIPPED: this machine is arm64, make test-cuda is the test here"
	exit 0
fi
if ! tools && [ "${CI:-}" = true ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive timeout 600 apt-get install -qq -y --no-install-recommends \
		gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user >/dev/null || true
fi
if ! tools; then
	echo "SKIPPED: the program for arm64 needs gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user"
	exit 0
fi
eval "$(sh scripts/cuda_env.sh)"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
# Print errors only: the linker names each amd64 library that it skips.
CC=aarch64-linux-gnu-gcc CGO_ENABLED=1 GOARCH=arm64 GOOS=linux $go build -tags cuda -o "$out/lorafuse" ./cmd/lorafuse >"$out/log" 2>&1 || {
	cat "$out/log" >&2
	exit 1
}
if aarch64-linux-gnu-nm -D --undefined-only "$out/lorafuse" | grep -E ' cu[A-Z]'; then
	echo "cuda_arm64: the program has undefined symbols of the driver" >&2
	exit 1
fi
"$qemu" -L "$libraries" "$out/lorafuse" devices | tee "$out/devices"
grep -q '^cuda .*no CUDA driver' "$out/devices"

# A driver that only describes a device. Calls to it pass through the trampolines.
aarch64-linux-gnu-gcc -shared -fPIC -x c -o "$out/libcuda.so" - <<'END'
#include <string.h>
int cuInit(unsigned flags) { return flags; }
int cuDriverGetVersion(int *v) { return *v = 13010, 0; }
int cuDeviceGetCount(int *n) { return *n = 1, 0; }
int cuDeviceGet(int *d, int i) { return *d = i, 0; }
int cuDeviceGetName(char *s, int n, int d) { return strncpy(s, "a device of arm64", n), d; }
int cuDeviceTotalMem_v2(size_t *n, int d) { return *n = (size_t)3 << 30, d; }
int cuDeviceGetAttribute(int *v, int a, int d) { return *v = a == 75 ? 9 : a == 16 ? 132 : 0, d; }
END
LORAFUSE_LIBCUDA=$out/libcuda.so "$qemu" -L "$libraries" "$out/lorafuse" devices | tee "$out/devices"
grep -q '^cuda:0  a device of arm64, 3.00 GiB (compute capability 9.0, 132 multiprocessors, driver 13.1)' "$out/devices"
