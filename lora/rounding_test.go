package lora_test

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/lora"
)

// TestRounding compares the error of adapters at precision bf16, whose operands
// and activations are rounded, with that of PyTorch's autocast to bfloat16, both against logits in
// float32. The error of one adapter is chance in part, and differs between processors: all together
// must be at most PyTorch's.
func TestRounding(t *testing.T) {
	raw, err := os.ReadFile("../testdata/rounding.json")
	require.NoError(t, err)
	var theirs struct{ Adapters map[string]float64 }
	require.NoError(t, json.Unmarshal(raw, &theirs))
	dev := testdevice.Open(t, backend.Options{Precision: backend.BF16})
	sum, n := 0.0, 0 // of the logarithms of the quotients
	for _, c := range goldenAdapters(t) {
		if _, refused := refusals[c.name]; refused {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			limit, ok := theirs.Adapters[c.name]
			require.True(t, ok, "no such adapter in rounding.json")
			m := openModel(t, c.model)
			s, err := lora.LoadState(c.dir, m, m.Config.ModelType, m.Modules())
			require.NoError(t, err)
			f := openFile(t, c.file)
			ids := tokenRows(t, f, "input_ids")
			want, got := floats(t, f, "logits"), logits(t, dev, m, s, ids)
			routed := m.Config.Mixture() != nil
			ours := testdevice.Rows(got, want, len(ids)*len(ids[0]), routed)
			t.Logf("error %.2g, PyTorch's %.2g", ours, limit)
			require.Less(t, ours, 1.5*limit)
			sum, n = sum+math.Log(ours/limit), n+1
		})
	}
	mean := math.Exp(sum / float64(n))
	t.Logf("error of all adapters: %.2g of PyTorch's", mean)
	require.LessOrEqual(t, mean, 1.0)
}
