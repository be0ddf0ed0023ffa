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
// float32. The error of one adapter is chance in part, and differs between processors: all together
// must be at most PyTorch's.
func TestRounding(t *testing.T) {
	raw, err := os.ReadFile("../testdata/rounding.json")
	require.NoError(t, err)
	var theirs struct{ Adapters map[string]float64 }
	require.NoError(t, json.Unmarshal(raw, &theirs))
	dev := testdevice.Open(t, backend.Options{Precision: backend.BF16})
	most := 1.25
	if testdevice.Backend() != backend.CPU {
		most = 1.5 // gemma4-shared on the fake Metal: 1.28
	}
	var rounding testdevice.Rounding
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
			rounding.Add(t, testdevice.Rows(got, want, len(ids)*len(ids[0]), routed), limit, most)
		})
	}
	rounding.Check(t)
}
