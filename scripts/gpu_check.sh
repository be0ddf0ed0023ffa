#!/bin/sh
# What is to be run on an NVIDIA GPU, and can only be compiled elsewhere.
#   scripts/gpu_check.sh prepare   builds all of it into output/gpu_check, to be carried there
#   scripts/gpu_check.sh run       runs it on the machine with the GPU, and writes output/gpu_check/report.txt
# On a machine with a GPU and the compilers, do one after the other.
#
# It begins with what all else rests on: every wrapper of kernels/cuda/device.cuh
# as PTX against its twin in the simulator.
set -eu
cd "$(dirname "$0")/.."
out=$PWD/output/gpu_check

prepare() {
	mkdir -p "$out"
	home=$(sh scripts/cuda_toolchain.sh)
	sh scripts/cuda_kernels.sh >"$out/registers.txt"
	sh scripts/cuda_sim.sh conformance >/dev/null
	cp kernels/sim/build/conformance/conformance kernels/sim/build/conformance/libcuda_twin.so "$out"
	"$home/bin/nvcc" -O3 -std=c++17 -gencode arch=compute_80,code=sm_80 -gencode arch=compute_89,code=sm_89 \
		-gencode arch=compute_90a,code=sm_90a -gencode arch=compute_100,code=sm_100 -gencode arch=compute_80,code=compute_80 \
		-fatbin kernels/sim/conformance/wrappers.cu -o "$out/wrappers.fatbin"
	eval "$(sh scripts/cuda_env.sh)"
	rm -f "$out"/*.test
	for package in $(go list -tags cuda -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./backend/cuda/...); do
		go test -c -tags cuda -o "$out/$(echo "${package#*/lorafuse/}" | tr / _).test" "$package"
	done
	echo "$out"
}

run() {
	report=$out/report.txt
	status=0
	step() { # step NAME COMMAND…
		name=$1
		shift
		printf '\n== %s\n' "$name"
		"$@" || {
			echo "FAILED: $name"
			status=1
		}
	}
	{
		date -u
		nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv 2>/dev/null || echo "no nvidia-smi"
		step "wrappers against their twins" "$out/conformance" "$out/libcuda_twin.so" "${LORAFUSE_LIBCUDA:-libcuda.so.1}" "$out/wrappers.fatbin"
		if command -v compute-sanitizer >/dev/null; then
			for tool in memcheck racecheck synccheck; do
				step "compute-sanitizer $tool" compute-sanitizer --tool $tool --error-exitcode 1 \
					"$out/conformance" "$out/libcuda_twin.so" "${LORAFUSE_LIBCUDA:-libcuda.so.1}" "$out/wrappers.fatbin"
			done
		else
			echo "compute-sanitizer is not installed"
		fi
		for test in "$out"/*.test; do
			[ -f "$test" ] || continue
			step "$(basename "$test")" env LORAFUSE_CUDA_TEST=1 "$test"
		done
		exit $status
	} >"$report" 2>&1 || status=1
	cat "$report"
	return $status
}

case ${1:-} in
prepare) prepare ;;
run) run ;;
*)
	sed -n '2,6s/^# \{0,1\}//p' "$0"
	exit 2
	;;
esac
