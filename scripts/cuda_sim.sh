#!/bin/sh
# Builds the simulated CUDA driver, kernels/sim/build/libcuda_sim.so, from the kernels
# in kernels/cuda and kernels/shared, incrementally. Needs g++ or clang++ (CXX) and make.
# Prints the path of the library.
#   scripts/cuda_sim.sh            builds the library
#   scripts/cuda_sim.sh TARGET…    builds other targets of kernels/sim/Makefile
set -eu
cd "$(dirname "$0")/../kernels/sim"
if [ -z "${CXX:-}" ]; then
	CXX=$(command -v g++ || command -v clang++ || true)
	if [ -z "$CXX" ]; then
		echo "cuda_sim: a C++17 compiler is needed: install g++ or clang++, or set CXX" >&2
		exit 1
	fi
fi
export CXX
mkdir -p build
exec 9>build/lock
! command -v flock >/dev/null || flock 9 # tests of several packages build at once
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! make --no-print-directory -j "$(nproc)" "$@" >"$log" 2>&1; then
	cat "$log" >&2
	exit 1
fi
grep -E 'warning:|error:' "$log" >&2 || true
echo "$PWD/build/libcuda_sim.so"
