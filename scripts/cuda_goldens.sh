#!/bin/sh
# Goldens on a CUDA device, which without a GPU is the simulated one: the tests
# that hold the CPU to PyTorch, with LORAFUSE_TEST_BACKEND=cuda. Logits, hidden
# states and greedy tokens of models; adapters of every kind, as they are and
# merged; gradients, training runs, resumed ones and steps of the example; in
# float32 and with operands rounded to bfloat16; and how often a step waits.
#   scripts/cuda_goldens.sh                     some of each
#   LORAFUSE_LONG=1 scripts/cuda_goldens.sh     all, and some in every order of
#                                               threads, copies late and at once
set -eu
cd "$(dirname "$0")/.."
root=$PWD
eval "$(sh scripts/cuda_env.sh)"
export LORAFUSE_LIBCUDA="${LORAFUSE_LIBCUDA:-$root/kernels/sim/build/libcuda_sim.so}"
export LORAFUSE_TEST_BACKEND=cuda
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for package in model lora train generate graph serve/batching; do
	"${GO:-go}" test -c -tags cuda -o "$out/$(basename "$package")" "./$package"
done

# goldens PACKAGE TESTS: as go test -run TESTS ./PACKAGE, under the environment of
# the simulator that is set.
goldens() {
	began=$(date +%s)
	log=$(mktemp "$out/XXXXXX")
	(cd "$root/$1" && "$out/$(basename "$1")" -test.v -test.run "$2" >"$log" 2>&1) || {
		grep -v '^=== ' "$log"
		echo "cuda_goldens: FAILED: $1 $2 $(env | grep '^LFSIM_' | tr '\n' ' ')"
		exit 1
	}
	n=$(grep -c '^ *--- PASS' "$log" || true)
	echo "cuda_goldens: $1 $2 $(env | grep '^LFSIM_' | tr '\n' ' '): $n passed in $(($(date +%s) - began)) s"
	[ "$n" != 0 ]
}

# some reaches every family of kernels: prompts and decoding, grouped heads and
# windows, biases, an adapter with dropout on its way, DoRA, quantised weights,
# training with clipping and AdamW, of classifiers too; products in float32 and on
# the tensor cores.
some() {
	goldens model 'TestGoldens/^(llama|extra)$/^(bf16|mistral-window|qwen3-biases|llama-f16)$|TestStoredQuantized/^(int8|nf4-double)$|TestRounding/^extra$/^(linear|mistral-window)$'
	goldens lora 'TestGoldenAdapters/^peft$/^(dora-biases|tokens-tied|embedding)$|TestRounding/^peft$/^(dora-biases|patterns-rslora)$'
	goldens train 'TestPEFTTraces/^(dora-biases|embedding|bias-all)$|TestTaskTraces/^classes-(llama|xlm-roberta)$|TestQuantizedTraces/nf4-odd|TestResumeIsExact|TestAStepWaitsOnce|TestJobsOnAnyDevice'
	goldens serve/batching 'TestMixedOnAnyDevice'
	goldens graph 'TestScenes|TestHandWrittenLoRAIsOneProduct'
}
if [ "${LORAFUSE_LONG:-}" != 1 ]; then
	some
	exit 0
fi
# Training takes as long as all else: side by side.
goldens train 'Traces|TestRounding|TestResumeIsExact|TestExampleSteps|TestJobsOnAnyDevice' &
training=$!
goldens model 'TestGoldens|TestRounding|TestStoredQuantized$|TestQuantize$'
goldens lora 'TestGoldenAdapters|TestRounding'
goldens generate 'TestCacheWithAdapters|TestDynamicRotaryScaling|TestPrefixIsReused|TestScorerRows|TestScorerLoss|TestSamplingIsReproducible|SetAdapter'
goldens serve/batching 'TestMixedOnAnyDevice'
goldens graph 'TestScenes|TestHandWrittenLoRAIsOneProduct'
for order in forward reverse random; do
	for eager in 0 1; do
		[ "$order $eager" = "forward 0" ] && continue # that is all of the above
		export LFSIM_ORDER=$order LFSIM_EAGER_CP=$eager LFSIM_SEED=7
		some
	done
done
wait $training
