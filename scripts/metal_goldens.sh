#!/bin/sh
# Goldens on a Metal device, which without a Mac is the fake one: the tests that hold
# the CPU to PyTorch, with LORAFUSE_TEST_BACKEND=metal. Logits, hidden states and greedy
# tokens of models; adapters of every kind, as they are and merged; gradients, training
# runs, resumed ones and steps of the example; in float32 and with operands rounded to
# bfloat16; and how often a step waits. Tiers and forms of bfloat16 follow from the family
# and the language of the device: family 9 has simdgroups and bfloat, 5 has neither.
#   scripts/metal_goldens.sh                     some of each, and of the plain tier
#   scripts/metal_goldens.sh few                 fewer, in both tiers
#   LORAFUSE_LONG=1 scripts/metal_goldens.sh     all, and some in every tier and form,
#                                                in every order of threads
set -eu
cd "$(dirname "$0")/.."
root=$PWD
# On a Mac, whose builds need no tag, LORAFUSE_METAL_TAGS is empty.
tags=${LORAFUSE_METAL_TAGS-metal metalfake}
[ -z "$tags" ] || export CC="${CC:-clang-19}" CXX="${CXX:-clang++-19}"
export CGO_ENABLED=1
export LORAFUSE_TEST_BACKEND=metal
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for package in model lora train generate graph serve/batching; do
	"${GO:-go}" test -c -tags "$tags" -o "$out/$(basename "$package")" "./$package"
done

# goldens PACKAGE TESTS: as go test -run TESTS ./PACKAGE, under the environment of
# the fake that is set.
goldens() {
	began=$(date +%s)
	log=$(mktemp "$out/XXXXXX")
	(cd "$root/$1" && "$out/$(basename "$1")" -test.v -test.run "$2" >"$log" 2>&1) || {
		grep -v '^=== ' "$log"
		echo "metal_goldens: FAILED: $1 $2 $(env | grep '^LFSIM_' | tr '\n' ' ')"
		exit 1
	}
	n=$(grep -c '^ *--- PASS' "$log" || true)
	echo "metal_goldens: $1 $2 $(env | grep '^LFSIM_' | tr '\n' ' '): $n passed in $(($(date +%s) - began)) s"
	[ "$n" != 0 ]
}

# few reaches models, adapters and training, in both precisions.
few() {
	goldens model 'TestGoldens/^extra$/^mistral-window$|TestRounding/^extra$/^linear$'
	goldens lora 'TestGoldenAdapters/^peft$/^dora-biases$|TestRounding/^peft$/^patterns-rslora$'
	goldens train 'TestPEFTTraces/^dora-biases$'
}

# some reaches every family of kernels: prompts and decoding, grouped heads and
# windows, biases, an adapter with dropout on its way, DoRA, quantised weights,
# training with clipping and AdamW, of classifiers too; products in float32 and of
# rounded operands.
some() {
	goldens model 'TestGoldens/^(llama|extra)$/^(bf16|mistral-window|qwen3-biases|llama-f16)$|TestStoredQuantized/^(int8|nf4-double)$|TestRounding/^extra$/^(linear|mistral-window)$'
	goldens lora 'TestGoldenAdapters/^peft$/^(dora-biases|tokens-tied|embedding)$|TestRounding/^peft$/^(dora-biases|patterns-rslora)$'
	goldens train 'TestPEFTTraces/^(dora-biases|embedding|bias-all)$|TestTaskTraces/^classes-(llama|xlm-roberta)$|TestQuantizedTraces/nf4-odd|TestResumeIsExact|TestAStepWaitsOnce|TestJobsOnAnyDevice'
	goldens serve/batching 'TestMixedOnAnyDevice'
	goldens graph 'TestScenes|TestHandWrittenLoRAIsOneProduct'
}
if [ "${LORAFUSE_LONG:-}" != 1 ]; then
	case ${1:-} in
	few) few ;;
	*) some ;;
	esac
	LFSIM_METAL_FAMILY=5
	export LFSIM_METAL_FAMILY
	few
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
	for device in '9 4.0' '9 3.0' '6 4.0' '5 4.0'; do # simdgroups or not, bfloat or not
		[ "$order $device" = 'forward 9 4.0' ] && continue # that is all of the above
		export LFSIM_ORDER=$order LFSIM_SEED=7 LFSIM_METAL_FAMILY="${device% *}" LFSIM_METAL_LANGUAGE="${device#* }"
		some
	done
done
wait $training
