#!/bin/sh
# Builds the fake Metal, kernels/sim/build/libmetal_sim.so, and lfmsl, which compiles
# shaders, incrementally. Prints the path of the library.
#   scripts/metal_sim.sh            builds both
#   scripts/metal_sim.sh TARGET…    builds other targets of kernels/sim/Makefile
#   scripts/metal_sim.sh tools      builds nothing; checks for the required tools
#
# It needs clang 19, GNUstep's Foundation and the blocks runtime (Debian: clang-19
# libobjc-12-dev libgnustep-base-dev libblocksruntime-dev). In CI, as root, it installs
# them; otherwise it lists the missing ones.
set -eu
cd "$(dirname "$0")/../kernels/sim"
CLANG=${CLANG:-clang-19} CLANGXX=${CLANGXX:-clang++-19}
export CLANG CLANGXX
packages='clang-19 libobjc-12-dev libgnustep-base-dev libblocksruntime-dev make'
missing() {
	for tool in "$CLANG" "$CLANGXX" make; do
		command -v "$tool" >/dev/null || echo "$tool"
	done
	for header in Foundation/Foundation.h:/usr/include/GNUstep Block.h:/usr/include; do
		[ -e "${header#*:}/${header%%:*}" ] || echo "${header%%:*}"
	done
}
if [ -n "$(missing)" ] && [ "${CI:-}" = true ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	# shellcheck disable=SC2086 # words
	apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive timeout 900 apt-get install -qq -y --no-install-recommends $packages >/dev/null || true
fi
if [ -n "$(missing)" ]; then
	echo "metal_sim: missing:" $(missing) "(Debian: $packages)" >&2
	exit 1
fi
[ "${1:-}" != tools ] || exit 0
[ $# -gt 0 ] || set -- metal
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! make --no-print-directory -j "$(nproc)" "$@" >"$log" 2>&1; then
	cat "$log" >&2
	exit 1
fi
grep -E 'warning:|error:' "$log" >&2 || true
echo "$PWD/build/libmetal_sim.so"
