#!/bin/sh
# Runs the checks that need an NVIDIA GPU; elsewhere they can only be built.
#   scripts/gpu_check.sh --pack DIR              builds the benchmarks, and the wrappers and value tests that
#                                                precede them, into DIR. Copy DIR to the machine with a checkout
#                                                of this commit, made thin: at most 60 MiB together, as tar counts
#     --arch ARCH                                machine code for 80, 89, 90a (H100 and H200, the default),
#                                                100, or all and PTX
#     --tree                                     include the files of the repository: no checkout is needed
#     --tests                                    the test programs instead of benchmarks: a pack for later, of
#                                                35 MB and more
#     --packages 'lora internal/train'       test programs of these packages only, for a smaller pack
#   scripts/gpu_check.sh --thin                  removes the files of this checkout that benchmarks do not need,
#                                                by git sparse-checkout; --whole restores them
#   scripts/gpu_check.sh --from DIR --out OUT    runs the pack: OUT/report.md, report.json, log.txt
#   scripts/gpu_check.sh --simulate [OUT]        runs everything here, in small sizes, on the simulated driver,
#                                                from a copy of the pack and nothing else
# The machine with the GPU needs only its driver. PyTorch with PEFT, ncu and
# compute-sanitizer are used if they are installed. Value checks come first, then
# benchmarks of user workloads; long suites and sanitizers are last. Reports are updated
# while steps run. More options of --from:
#   --part N                   the steps of this part, at most eight minutes: 1 has the benchmarks,
#                              2 takes three minutes, the others are long suites
#   --only STEP,STEP           only these steps
#   --tree CHECKOUT            the checkout (default: .)
#   --limit 8m                 stop after this time, and list the steps that did not run
#   --continue report.json     continue an earlier report, also with another pack: run the steps
#                              that did not run before
# Exit status: 0 all steps that could run passed, 1 a step failed, 3 no device was found,
# 4 the time limit was reached.
set -eu
go=${GO:-go}
thin='. :!testdata :!examples/*/model' # what is left of a checkout by --thin

# from DIR …: runs the pack in DIR, which contains a copy of this script.
from() {
	dir=$1
	shift
	gzip -dc "$dir/gpucheck.gz" >"$dir/gpucheck"
	chmod +x "$dir/gpucheck"
	exec "$dir/gpucheck" run --from "$dir" "$@"
}

# folders PATTERN: prints the packages whose tests have a matching line.
folders() { git ls-files --cached --others --exclude-standard '*_test.go' | grep -v '^tools/' | xargs grep -lE "$1" | xargs -r -n 1 dirname | sort -u; }

pack() {
	to=$1
	shift
	beside=--beside
	only=
	measures=yes
	arch=90a
	while [ $# -gt 0 ]; do
		case $1 in
		--tree) beside= ;;
		--tests) measures= ;;
		--arch)
			arch=${2:?--arch needs a number}
			shift
			;;
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
	# Embed the kernels of this architecture instead of the ones in kernels/cuda/build.
	kernels=output/gpu_check/kernels_$arch
	export LORAFUSE_CUDA_ARCH="$arch"
	[ -d "$kernels" ] || [ ! -d kernels/cuda/build ] || cp -R kernels/cuda/build "$kernels" # kernels of other architectures are rebuilt
	sh scripts/cuda_kernels.sh "$kernels" >"$bin/registers.txt"
	overlay=$PWD/output/gpu_check/overlay.json
	embedded "$PWD/kernels/cuda/build" "$PWD/$kernels" >"$overlay"
	eval "$(sh scripts/cuda_env.sh)"
	export CGO_ENABLED=1
	tests=
	packages=
	$go build -tags cuda -overlay "$overlay" -ldflags "-s -w" -o "$bin/gpubench" ./cmd/gpubench
	if [ -n "$measures" ]; then
		wrappers
	else
		# Tests of the CUDA backend, and tests that run on any backend. Tests of kernels,
		# internal/lint and the shim need no device, and those of dist/mpi need a launcher.
		for package in $(folders '^//go:build .*\<cuda\>' | grep -vxE 'internal/lint|kernels|backend/cuda/internal/shim|dist/mpi'); do
			program "$package" false
		done
		for package in $(folders '/dev/testdevice"' | grep -vxE 'serve|internal/serve/tinker'); do
			# Run only the tests of these packages that request the device; the computations of
			# serve are in internal/serve/batching and train/session.
			program "$package" true "$(grep -l '/dev/testdevice"' "$package"/*_test.go | xargs sed -n 's/^func \(Test[A-Za-z0-9_]*\)(.*/\1/p' | grep -vx TestMain | paste -sd '|')"
		done
	fi
	commit=$(git rev-parse --short HEAD)$(git diff --quiet HEAD || echo ' with changes')
	printf '{"commit": "%s", "built": "%s, nvcc %s", "arch": "%s", "tests": [%s]}\n' "$commit" "$($go env GOVERSION)" \
		"$("$home/bin/nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')" "$arch" "${tests#, }" >"$bin/pack.json"
	CGO_ENABLED=0 $go build -trimpath -gcflags=all=-l -ldflags "-s -w" -o "$bin/../gpucheck" ./cmd/gpucheck # not inlined: a tenth smaller
	rm -f "$to/gpucheck"
	gzip -9c "$bin/../gpucheck" >"$to/gpucheck.gz"
	cp scripts/gpu_check.sh "$to"
	# Files of a thin checkout, or the files that tests read and the sources of the kernels.
	files=$thin
	[ -n "$beside" ] || files="testdata examples/godoc kernels scripts $packages"
	# shellcheck disable=SC2086
	git ls-files --cached --others --exclude-standard -- $files | "$bin/../gpucheck" pack $beside "$to" "$bin" "$PWD"
	du -sh "$to" >&2
}

# wrappers: builds the program that compares PTX wrappers with their simulated versions.
wrappers() {
	sh scripts/cuda_sim.sh conformance >/dev/null
	cp kernels/sim/build/conformance/conformance kernels/sim/build/conformance/libcuda_twin.so "$bin"
	strip "$bin/conformance" "$bin/libcuda_twin.so"
	fat=kernels/sim/build/conformance/wrappers_$arch.fatbin
	if [ ! -f "$fat" ] || [ -n "$(find kernels/sim/conformance/wrappers.cu kernels/cuda/*.cuh -newer "$fat")" ]; then
		# shellcheck disable=SC2046
		"$home/bin/nvcc" -O3 -std=c++17 $(sh scripts/cuda_arch.sh) -fatbin kernels/sim/conformance/wrappers.cu -o "$fat"
	fi
	cp "$fat" "$bin/wrappers.fatbin"
}

# carried DIR PATH…: copies DIR, and the files of this checkout that match, to output/gpu_check/carried.
carried() {
	mkdir -p output/gpu_check/carried
	cp -r "$1" output/gpu_check/carried
	shift
	git ls-files --cached --others --exclude-standard -- "$@" | while IFS= read -r name; do
		[ ! -f "$name" ] || printf '%s\n' "$name"
	done | tar -cf - -T - | tar -xf - -C output/gpu_check/carried
}

# embedded FOLDER OTHER: prints an overlay for go build that embeds the fat binaries of OTHER instead of FOLDER's.
embedded() {
	printf '{"Replace": {'
	comma=
	for fat in "$1"/*.fatbin "$2"/*.fatbin; do
		name=$(basename "$fat")
		[ -f "$fat" ] || continue
		other=$2/$name
		[ -f "$other" ] || other=
		printf '%s"%s": "%s"' "$comma" "$1/$name" "$other"
		comma=', '
	done
	echo '}}'
}

# program PACKAGE GOLDEN [TESTS]: builds the test program of a package.
program() {
	[ -z "$only" ] || case $only in *" $1 "*) ;; *) return 0 ;; esac
	$go test -c -tags cuda -overlay "$overlay" -ldflags "-s -w" -o "$bin/$(echo "$1" | tr / _).test" "./$1"
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
	export LORAFUSE_LIBCUDA LFSIM_CC=9.0
	pack output/gpu_check/pack
	pack output/gpu_check/tests --tests
	mkdir -p "${2:-output/gpu_check/simulated}"
	out=$(cd "${2:-output/gpu_check/simulated}" && pwd)
	rm -rf output/gpu_check/carried
	# shellcheck disable=SC2086
	carried output/gpu_check/pack $thin
	(cd output/gpu_check/carried && sh scripts/gpu_check.sh --from pack --out "$out" --simulate)
	carried output/gpu_check/tests .
	(cd output/gpu_check/carried && sh scripts/gpu_check.sh --from tests --out "$out" --simulate --continue "$out/report.json")
	rm -rf output/gpu_check/carried
	if grep 'not measured' "$out/report.md" | grep -qv torch; then
		echo "gpu_check: a target has no figure: see $out/report.md" >&2
		exit 1
	fi
	;;
--thin)
	cd "$(dirname "$0")/.."
	git sparse-checkout set --no-cone '/*' '!/testdata/' '!/examples/*/model/'
	;;
--whole)
	cd "$(dirname "$0")/.."
	git sparse-checkout disable
	;;
--from)
	dir=${2:?--from needs the folder of a pack}
	shift 2
	from "$dir" "$@"
	;;
*)
	sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
	exit 2
	;;
esac
