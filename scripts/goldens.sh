# Golden tests for devices, the same tests that compare the CPU with PyTorch. Source this
# file in the root of the repository, with LORAFUSE_TEST_BACKEND and $tags set, and with
# the environment of a simulated device if there is one. The tests cover logits, hidden
# states and greedy tokens of models; adapters of every kind, separate, merged and mixed;
# gradients, training runs, resumed runs, concurrent jobs and steps of the example;
# diffusion transformers, autoencoders and generated images, in float32 and with operands
# rounded to bfloat16; and the number of waits per step.
root=$PWD
script=$(basename "$0" .sh)
out=$(mktemp -d)
trap 'status=$?; [ ! -e "$out/failed" ] || status=1; rm -rf "$out"; exit $status' EXIT
for package in internal/model lora internal/train internal/generate graph internal/serve/batching internal/diffusion/dit internal/diffusion/vae internal/diffusion; do
	"${GO:-go}" test -c -tags "$tags" -o "$out/$(basename "$package")" "./$package"
done

# goldens PACKAGE TESTS: go test -run TESTS ./PACKAGE, in the environment of the simulated
# device. If it fails, the next ones still run, and the script ends with an error.
goldens() {
	began=$(date +%s)
	log=$(mktemp "$out/XXXXXX")
	(cd "$root/$1" && "$out/$(basename "$1")" -test.v -test.run "$2" >"$log" 2>&1) || {
		grep -v '^=== ' "$log"
		echo "$script: FAILED: $1 $2 $(env | grep '^LFSIM_' | tr '\n' ' ')" | tee "$out/failed"
	}
	if grep '^lfsim: leak:' "$log"; then
		echo "$script: FAILED: $1 $2: memory of the simulated device is not freed" | tee "$out/failed"
	fi
	n=$(grep -c '^ *--- PASS' "$log" || true)
	echo "$script: $1 $2 $(env | grep '^LFSIM_' | tr '\n' ' '): $n passed in $(($(date +%s) - began)) s"
	[ "$n" != 0 ] || echo "$script: FAILED: $1 $2: no such test" | tee "$out/failed"
}

# few covers models, adapters and training, in both precisions.
few() {
	goldens internal/model 'TestGoldens/^extra$/^mistral-window$|TestRounding/^extra$/^linear$'
	goldens lora 'TestGoldenAdapters/^peft$/^dora-biases$|TestRounding/^peft$/^patterns-rslora$'
	goldens internal/train 'TestPEFTTraces/^dora-biases$'
	goldens internal/diffusion/dit 'TestGoldens/^flux$|TestTraces/^qwenimage-edit-zero-cond$'
}

# fewest covers adapters and training, for a form of the kernels that the conformance suite
# does not run in.
fewest() {
	goldens lora 'TestGoldenAdapters/^peft$/^dora-biases$|TestRounding/^peft$/^patterns-rslora$'
	goldens internal/train 'TestPEFTTraces/^dora-biases$'
}

# some covers every family of kernels: prompts and decoding, grouped heads and windows,
# biases, an adapter with dropout on its input, DoRA, quantized weights, training with
# clipping and AdamW, also of classifiers; matrix multiplications in float32 and with
# rounded operands.
some() {
	goldens internal/model 'TestGoldens/^(llama|extra)$/^(bf16|mistral-window|qwen3-biases|llama-f16)$|TestStoredQuantized/^(int8|nf4-double)$|TestStoredFloat8/^rows$|TestFloat8Goldens/^fp8-block|TestRounding/^extra$/^(linear|mistral-window)$'
	goldens lora 'TestGoldenAdapters/^peft$/^(dora-biases|tokens-tied|embedding)$|TestRounding/^peft$/^(dora-biases|patterns-rslora)$'
	goldens internal/train 'TestPEFTTraces/^(dora-biases|embedding|bias-all)$|TestTaskTraces/^classes-(llama|xlm-roberta)$|TestQuantizedTraces/nf4-odd|TestResumeIsExact|TestAStepWaitsOnce|TestJobsOnAnyDevice'
	goldens internal/serve/batching 'TestMixedOnAnyDevice'
	goldens graph 'TestScenes|TestHandWrittenLoRAIsOneProduct'
	goldens internal/diffusion/dit 'TestGoldens/^(flux|zimage|qwenimage-edit-zero-cond)$|TestTraces/^qwenimage$'
	goldens internal/diffusion/vae 'TestGoldens|TestRounding'
}

# all runs every test. Training takes as long as the rest, so both run in parallel.
all() {
	goldens internal/train 'Traces|TestRounding|TestResumeIsExact|TestExampleSteps|TestJobsOnAnyDevice' &
	training=$!
	goldens internal/model 'TestGoldens|TestRounding|TestStoredQuantized$|TestStoredFloat8$|TestFloat8Goldens|TestQuantize$|TestQuantizeFloat8'
	goldens lora 'TestGoldenAdapters|TestRounding'
	goldens internal/generate 'TestCacheWithAdapters|TestDynamicRotaryScaling|TestPrefixIsReused|TestScorerRows|TestScorerLoss|TestSamplingIsReproducible|SetAdapter'
	goldens internal/serve/batching 'TestMixedOnAnyDevice'
	goldens graph 'TestScenes|TestHandWrittenLoRAIsOneProduct'
	goldens internal/diffusion/dit 'TestGoldens|TestTraces|TestFlux2|TestZImage|TestQwenImage21|TestKandinsky5'
	goldens internal/diffusion/vae 'TestGoldens|TestRounding'
	goldens internal/diffusion 'TestSampling|TestEncoders'
	wait $training
}
