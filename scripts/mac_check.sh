#!/bin/sh
# Runs the checks that need a Mac: the Metal backend on an Apple GPU, in one report.
#   scripts/mac_check.sh [OUT]             OUT/report.md and a log of each step (output/mac_check)
#   scripts/mac_check.sh --short [OUT]     without the longer goldens and without benchmarks
#   scripts/mac_check.sh --fake [OUT]      the short form on the fake Metal, to test this script on Linux
# It needs Go and the command-line tools of Xcode (xcode-select --install), not Xcode. If
# xcrun has the metal compiler, it also compiles the shaders; if PYTHON (python3) has
# mlx-lm and numpy, it also measures mlx-lm. Steps run even after another has failed.
# Exit status: 0 all steps that could run passed, 1 a step failed, 3 no device was found.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
python=${PYTHON:-python3}
mode=all
case ${1:-} in
--short | --fake)
	mode=${1#--}
	shift
	;;
-*)
	echo "mac_check: unknown flag $1" >&2
	exit 2
	;;
esac
out=${1:-output/mac_check}
mkdir -p "$out"
out=$(cd "$out" && pwd)
tags=
if [ "$mode" = fake ]; then
	tags='metal metalfake'
	export CC="${CC:-clang-19}" CXX="${CXX:-clang++-19}"
	sh scripts/metal_sim.sh >/dev/null
elif [ "$(uname -s)" != Darwin ]; then
	echo 'mac_check: this is no Mac; --fake tries the script on the fake Metal' >&2
	exit 2
fi
export CGO_ENABLED=1 LORAFUSE_REQUIRE_METAL=1

report=$out/report.md
failed=0
{
	echo "# lorafuse on Metal, $(date -u +%Y-%m-%d)"
	echo
	echo "Commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $($go env GOVERSION), $(uname -srm)$([ "$mode" != fake ] || echo ', on the fake Metal: nothing here is of a GPU')."
	echo
	echo '| step | result | seconds |'
	echo '|---|---|---|'
} >"$report"

# step NAME COMMAND…: runs a command, adds a row to the report, and writes a log.
step() {
	name=$1
	shift
	log=$out/$(echo "$name" | tr ' /' '__').txt
	began=$(date +%s)
	if "$@" >"$log" 2>&1; then word=passed; else
		word=FAILED
		failed=1
	fi
	printf '| %s | %s | %s |\n' "$name" "$word" $(($(date +%s) - began)) | tee -a "$report"
}

# quote NAME LOG: adds a log to the report.
quote() {
	printf '\n## %s\n\n```\n%s\n```\n' "$1" "$(cat "$2")" >>"$report"
}

# shaders: compiles every file with Apple's compiler, in each form.
shaders() {
	for simd in 0 1; do
		for bfloat in 0 1; do
			for f in kernels/metal/*.metal kernels/shared/*.cu; do
				xcrun -sdk macosx metal -x metal -std=metal3.1 -Ikernels/metal -Ikernels/shared -fno-fast-math -Wall -DLF_SIMD=$simd -DLF_BFLOAT=$bfloat -c "$f" -o /dev/null
			done
		done
	done
}

# goldens: runs the goldens of scripts/metal_goldens.sh on this device.
goldens() { LORAFUSE_METAL_TAGS="$tags" sh scripts/metal_goldens.sh; }

build() { $go build -tags "$tags" -trimpath -o "$out/lorafuse" ./cmd/lorafuse; }
# conformance: all tests of the backend; on the fake Metal, which make test-metal tests, only values.
conformance() { $go test -tags "$tags" -count 1 -timeout 60m -v $([ "$mode" != fake ] || echo '-run ^TestConformance$/^value$') ./backend/metal; }
# probe: prints whether products and sums are contracted, rates of f32, f16 and bf16 matrices, and for each pipeline
# threads and threadgroup memory. It fails if products are contracted or a pipeline allows fewer threads than needed.
probe() { $go test -tags "$tags" -count 1 -timeout 60m -v -run TestInspect ./backend/metal; }
plain() { LORAFUSE_METAL_TIER=plain $go test -tags "$tags" -count 1 -timeout 60m -run TestConformance ./backend/metal; }
rounded() { LORAFUSE_METAL_BFLOAT=0 $go test -tags "$tags" -count 1 -timeout 60m -run 'TestConformance|TestRounded' ./backend/metal; }
devices() { "$out/lorafuse" devices && "$out/lorafuse" devices --json | grep -q '"backend": *"metal"'; }
example() { "$out/lorafuse" train examples/godoc/train.yaml --set backend=metal --set max_steps=10 --set "output_dir=$out/example"; }

step build build
[ "$failed" = 0 ] || exit 1
step devices devices
found=$failed
[ "$found" != 0 ] || step probe probe
quote devices "$out/devices.txt"
[ "$found" = 0 ] || exit 3
quote probe "$out/probe.txt"
printf '\n## steps\n\n| step | result | seconds |\n|---|---|---|\n' >>"$report"
if xcrun -sdk macosx -f metal >/dev/null 2>&1; then step shaders shaders; fi
step conformance conformance
if [ "$mode" != fake ]; then
	step 'conformance of the plain tier' plain
	step 'conformance without bfloat' rounded
	step goldens goldens
fi
if [ "$mode" = all ]; then
	step 'longer goldens' env LORAFUSE_LONG=1 LORAFUSE_METAL_TAGS="$tags" sh scripts/metal_goldens.sh
	step 'ten steps of the example' example
	step 'bench kernels' "$out/lorafuse" bench kernels --backend metal --save "$out/kernels.json"
	step 'bench step' "$out/lorafuse" bench step --backend metal --save "$out/step.json" --markdown
	quote 'bench step' "$out/bench_step.txt"
	step 'bench decode' "$out/lorafuse" bench decode --backend metal --save "$out/decode.json" --markdown
	quote 'bench decode' "$out/bench_decode.txt"
	if "$python" -c 'import mlx_lm, numpy' 2>/dev/null; then
		# The shapes of lorafuse bench --size small.
		"$python" scripts/make_model.py --out "$out/small" --hidden 512 --layers 8 --inter 1408 --heads 8 --kv-heads 4 --vocab 8192 --dtype bf16 >/dev/null
		step mlx-lm "$python" scripts/bench_mlx.py --model "$out/small"
		quote mlx-lm "$out/mlx-lm.txt"
	fi
fi
echo "mac_check: $report"
exit $failed
