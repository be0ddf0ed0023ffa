package model_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
)

// TestRounding compares the error of precision bf16 to that of PyTorch's autocast
// to bfloat16, both against exact logits. Both round results that lie in memory;
// ours rounds operands of products only where the machine has such products. The error of
// one case is chance in part, and differs between processors: all cases together must be at
// most PyTorch's.
func TestRounding(t *testing.T) {
	raw, err := os.ReadFile("../../testdata/rounding.json")
	require.NoError(t, err)
	var theirs struct{ Logits map[string]float64 }
	require.NoError(t, json.Unmarshal(raw, &theirs))
	require.NotEmpty(t, theirs.Logits)
	dev := testdevice.Open(t, backend.Options{Precision: backend.BF16})
	var rounding testdevice.Rounding
	for name, limit := range theirs.Logits {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("../../testdata", name)
			file := filepath.Join(dir, "golden.safetensors")
			if _, err := os.Stat(file); err != nil {
				file = filepath.Join(filepath.Dir(dir), "golden.safetensors")
			}
			m, f, ids, s := golden{name, dir, file}.open(t, dev)
			got, err := s.Logits(context.Background(), ids)
			require.NoError(t, err)
			want := floats(t, f, "logits")
			require.Len(t, got, len(want))
			routed := m.Config.Mixture() != nil
			rounding.Add(t, testdevice.Rows(got, want, len(ids)*len(ids[0]), routed), limit, 1.25)
		})
	}
	rounding.Check(t)
}
