package lora_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

func digest(t testing.TB, a *lora.Adapter) string {
	t.Helper()
	d, err := a.Digest()
	require.NoError(t, err)
	assert.Equal(t, d.String()[:12], d.Short())
	return d.String()
}

// People write digests down, so they stay what they are.
func TestDigestStays(t *testing.T) {
	for dir, want := range map[string]string{
		"lm/llama/adapters/lora":     "482b066e9b011afe98c317092835e97c1ac83ab1ad390eb299a251942f7ed1cb",
		"lm/llama/adapters/patterns": "e7a6e22527357d81431011dbca9d47fc481de8c5e1fd6b39dd826d040fd5ccda",
		"peft/embedding/adapter":     "f1929d6f5f27fb0cdbd324a4c8e4a7613e1c0ef0b197eda609f7a92f0679e356",
	} {
		assert.Equal(t, want, digest(t, load(t, "../testdata/"+dir)), dir)
	}
}

// A digest is about what an adapter computes, in whatever way that is written.
func TestDigest(t *testing.T) {
	adapter := func(settings string, edit func([]lora.Tensor) []lora.Tensor) string {
		tensors := []lora.Tensor{}
		for _, key := range []string{"a", "b"} {
			x, err := tensor.FromFloat32s([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
			require.NoError(t, err)
			tensors = append(tensors, lora.Tensor{Key: key, Tensor: x})
		}
		if edit != nil {
			tensors = edit(tensors)
		}
		a, err := lora.New(parse(t, settings), tensors)
		require.NoError(t, err)
		return digest(t, a)
	}
	const plain = `"r": 4, "target_modules": ["q_proj", "v_proj"]`
	want := adapter(plain, nil)
	for _, settings := range []string{
		`"target_modules": ["v_proj", "q_proj"], "r": 4`,
		plain + `, "lora_alpha": 8.0, "lora_dropout": 0.1, "peft_version": "0.1", "inference_mode": false`,
		plain + `, "base_model_name_or_path": "x", "revision": "main", "task_type": "CAUSAL_LM", "auto_mapping": {"parent_library": "y"}`,
		plain + `, "init_lora_weights": "gaussian", "use_dora": null, "megatron_config": null, "unknown": 3`,
	} {
		assert.Equal(t, want, adapter(settings, nil), settings)
	}
	others := []string{want}
	for _, settings := range []string{
		`"r": 8, "target_modules": ["q_proj", "v_proj"]`,
		`"r": 4, "target_modules": ["q_proj"]`,
		`"r": 4, "target_modules": "q_proj"`,
		`"r": 4, "target_modules": []`,
		`"r": 4`,
		plain + `, "lora_alpha": 9`, plain + `, "use_rslora": true`, plain + `, "use_dora": true`, plain + `, "bias": "all"`,
		plain + `, "rank_pattern": {"q": 1, "v": 2}`, plain + `, "rank_pattern": {"v": 2, "q": 1}`, plain + `, "alpha_pattern": {"q": 1}`,
		plain + `, "task_type": "SEQ_CLS"`, plain + `, "init_lora_weights": "pissa"`, plain + `, "init_lora_weights": "olora"`,
		plain + `, "trainable_token_indices": [1]`, plain + `, "trainable_token_indices": [2]`, plain + `, "modules_to_save": ["lm_head"]`,
	} {
		others = append(others, adapter(settings, nil))
	}

	assert.Equal(t, want, adapter(plain, func(x []lora.Tensor) []lora.Tensor { slices.Reverse(x); return x }))
	for _, edit := range []func(x []lora.Tensor){
		func(x []lora.Tensor) { x[0].Key = "c" },
		func(x []lora.Tensor) { x[0].Key, x[1].Key = "ab", "" },
		func(x []lora.Tensor) { x[0].Shape = []int{3, 2} },
		func(x []lora.Tensor) { x[0].DType = tensor.I32 },
		func(x []lora.Tensor) { x[0].Data = slices.Clone(x[0].Data); x[0].Data[23] ^= 1 },
	} {
		others = append(others, adapter(plain, func(x []lora.Tensor) []lora.Tensor { edit(x); return x }))
	}
	others = append(others, adapter(plain, func(x []lora.Tensor) []lora.Tensor { return x[:1] }))
	slices.Sort(others)
	assert.Len(t, slices.Compact(slices.Clone(others)), len(others))
}
