package batching_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// narrowed writes an adapter twice: with its factors in a narrow type, and with the same
// numbers as f32.
func narrowed(t testing.TB, dir string, d tensor.DType) (narrow, wide string) {
	t.Helper()
	a, err := lora.Load(dir)
	require.NoError(t, err)
	defer a.Close()
	var few, all []lora.Tensor
	for _, name := range a.Names() {
		x, _ := a.Tensor(name)
		y, err := x.Convert(d)
		require.NoError(t, err)
		z, err := y.Convert(tensor.F32)
		require.NoError(t, err)
		few, all = append(few, lora.Tensor{Key: name, Tensor: y}), append(all, lora.Tensor{Key: name, Tensor: z})
	}
	root := t.TempDir()
	narrow, wide = filepath.Join(root, "narrow"), filepath.Join(root, "wide")
	require.NoError(t, lora.Save(narrow, a.Config, few))
	require.NoError(t, lora.Save(wide, a.Config, all))
	return narrow, wide
}

// requireNear requires the same tokens, and what was said of them but for rounding.
func requireNear(t testing.TB, want, got answer) {
	t.Helper()
	require.Equal(t, want.IDs, got.IDs)
	for i := range want.Said {
		require.InDelta(t, want.Said[i].Logprob, got.Said[i].Logprob, 1e-5)
	}
}

// TestTypes: factors lie on the device in the type of their file. Answers are those of
// the same numbers as f32, but for the order in which products are summed, and to the
// bit those of the adapter alone, beside others of the same and of other types.
func TestTypes(t *testing.T) {
	for _, base := range []string{llama, "../../../testdata/lm/llama/model-bf16"} {
		m := open(t, base)
		plain := built(t, m, `"target_modules":"all-linear","r":8`, 1)
		dora := built(t, m, `"target_modules":["q_proj","down_proj"],"r":5,"use_dora":true`, 2)
		dirs := map[string]string{"dora": dora}
		dirs["bf16"], dirs["as-bf16"] = narrowed(t, plain, tensor.BF16)
		dirs["f16"], dirs["as-f16"] = narrowed(t, plain, tensor.F16)
		dirs["dora-bf16"], dirs["as-dora-bf16"] = narrowed(t, dora, tensor.BF16)
		b := newBench(t, base, dirs, batching.Options{PageRows: 4, MaxBatchTokens: 64})
		var asked []batching.Request
		var want []answer
		for _, length := range []int{1, 7, 60} {
			for name := range dirs {
				r := greedy(name, prompt(m, uint64(length), length), 9)
				asked, want = append(asked, r), append(want, b.expected(r))
				if wide := "as-" + name; dirs[wide] != "" {
					r.Adapter = wide
					requireNear(t, b.expected(r), want[len(want)-1])
				}
			}
		}
		require.Equal(t, want, b.all(asked))
	}
}
