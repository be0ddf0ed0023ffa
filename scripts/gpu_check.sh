#!/bin/sh
# What is to be run where there is an NVIDIA GPU, and can only be built elsewhere.
#   scripts/gpu_check.sh --pack DIR              builds all of it into DIR, at most 64 MiB to be carried there
#     --no-tree                                  leaves out the files of the repository: a checkout must be there (--tree)
#     --packages 'backend/cuda model'            leaves out the tests of others, to carry less at a time
#   scripts/gpu_check.sh --from DIR --out OUT    runs it there: OUT/report.md, report.json, log.txt
#   scripts/gpu_check.sh --simulate [OUT]        both here, in small sizes, on the simulated driver
# The machine with the GPU needs its driver and nothing else; compute-sanitizer is
# used where it is. Reports are written step by step; with --from also go
#   --only STEP,STEP           these steps alone
#   --limit 9m                 end after so long, and say what was not run
#   --continue report.json     go on from an earlier report; what was not run then is run now
# Exit status: 0 all that could be run passed, 1 a step failed, 3 there was no device,
# 4 the time was up before all was run.
set -eu
go=${GO:-go}

# A copy of this script lies beside the programs that it has packed.
from() {
	dir=$1
	shift
	exec "$dir/gpucheck" run --from "$dir" "$@"
}

# folders PATTERN: the packages whose tests have a line like that.
folders() { git ls-files --cached --others --exclude-standard '*_test.go' | grep -v '^tools/' | xargs grep -lE "$1" | xargs -r -n 1 dirname | sort -u; }

pack() {
	to=$1
	shift
	tree=yes
	only=
	while [ $# -gt 0 ]; do
		case $1 in
		--no-tree) tree= ;;
		--packages)
			only=" ${2:?--packages needs names} "
			shift
			;;
		*)
			echo "gpu_check: unknown flag $1" >&2
			exit 2
			;;
		esac
		shift
	done
	home=$(sh scripts/cuda_toolchain.sh)
	bin=$PWD/output/gpu_check/bin
	rm -rf "$bin"
	mkdir -p "$bin" "$to"
	sh scripts/cuda_kernels.sh >"$bin/registers.txt"
	sh scripts/cuda_sim.sh conformance >/dev/null
	cp kernels/sim/build/conformance/conformance kernels/sim/build/conformance/libcuda_twin.so "$bin"
	strip --strip-debug "$bin/conformance" "$bin/libcuda_twin.so"
	wrappers=kernels/sim/build/conformance/wrappers.fatbin
	if [ ! -f "$wrappers" ] || [ -n "$(find kernels/sim/conformance/wrappers.cu kernels/cuda/*.cuh -newer "$wrappers")" ]; then
		"$home/bin/nvcc" -O3 -std=c++17 -gencode arch=compute_80,code=sm_80 -gencode arch=compute_89,code=sm_89 \
			-gencode arch=compute_90a,code=sm_90a -gencode arch=compute_100,code=sm_100 -gencode arch=compute_80,code=compute_80 \
			-fatbin kernels/sim/conformance/wrappers.cu -o "$wrappers"
	fi
	cp "$wrappers" "$bin"
	eval "$(sh scripts/cuda_env.sh)"
	export CGO_ENABLED=1
	$go build -tags cuda -ldflags "-s -w" -o "$bin/lorafuse" ./cmd/lorafuse
	tests=
	packages=
	# Tests of the CUDA backend, and those that run on any backend; those of kernels
	# and internal/lint want no device.
	for package in $(folders '^//go:build .*\<cuda\>' | grep -vxE 'internal/lint|kernels'); do
		program "$package" false
	done
	for package in $(folders '/internal/testdevice"'); do
		# Of these packages only the tests that ask for the device.
		program "$package" true "$(grep -l '/internal/testdevice"' "$package"/*_test.go | xargs sed -n 's/^func \(Test[A-Za-z0-9_]*\)(.*/\1/p' | grep -vx TestMain | paste -sd '|')"
	done
	commit=$(git rev-parse --short HEAD)$(git diff --quiet HEAD || echo ' with changes')
	printf '{"commit": "%s", "built": "%s, nvcc %s", "tests": [%s]}\n' "$commit" "$($go env GOVERSION)" \
		"$("$home/bin/nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')" "${tests#, }" >"$bin/pack.json"
	CGO_ENABLED=0 $go build -trimpath -ldflags "-s -w" -o "$to/gpucheck" ./cmd/gpucheck
	cp scripts/gpu_check.sh "$to"
	files= # that tests read, and the sources of the kernels
	[ -z "$tree" ] || files=$(git ls-files --cached --others --exclude-standard testdata examples/godoc kernels scripts $packages)
	printf '%s\n' "$files" | "$to/gpucheck" pack "$to" "$bin" "$PWD"
	du -sh "$to" >&2
}

# program PACKAGE GOLDEN [TESTS]: its test program.
program() {
	[ -z "$only" ] || case $only in *" $1 "*) ;; *) return 0 ;; esac
	$go test -c -tags cuda -ldflags "-s -w" -o "$bin/$(echo "$1" | tr / _).test" "./$1"
	packages="$packages $1"
	tests="$tests, {\"name\": \"$1\", \"golden\": $2, \"run\": \"${3:-}\"}"
}

case ${1:-} in
--pack)
	cd "$(dirname "$0")/.."
	: "${2:?--pack needs a folder}"
	shift
	pack "$@"
	;;
--simulate)
	cd "$(dirname "$0")/.."
	LORAFUSE_LIBCUDA=$(sh scripts/cuda_sim.sh)
	export LORAFUSE_LIBCUDA
	pack output/gpu_check/pack
	out=${2:-output/gpu_check/simulated}
	(from output/gpu_check/pack --out "$out" --simulate)
	if grep 'not measured' "$out/report.md" | grep -qv PEFT; then
		echo "gpu_check: a target has no figure: see $out/report.md" >&2
		exit 1
	fi
	;;
--from)
	dir=${2:?--from needs the folder of a pack}
	shift 2
	from "$dir" "$@"
	;;
*)
	sed -n '2,15s/^# \{0,1\}//p' "$0"
	exit 2
	;;
esac
