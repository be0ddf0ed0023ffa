package lora_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/lora"
)

// TestRounding compares the error of adapters at precision bf16, whose operands
// and activations are rounded, with that of PyTorch's autocast to bfloat16, both against logits in
// float32. A twentieth of either is chance.
func TestRounding(t *testing.T) {
	raw, err := os.ReadFile("../testdata/rounding.json")
	require.NoError(t, err)
	var theirs struct{ Adapters map[string]float64 }
	require.NoError(t, json.Unmarshal(raw, &theirs))
	dev := testdevice.Open(t, backend.Options{Precision: backend.BF16})
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
			require.Less(t, ours, 1.05*limit)
		})
	}
}
