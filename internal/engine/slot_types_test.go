package engine_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// TestSlotTypes: factors lie in a slot in the type of their file, those of DoRA and of
// what is to be trained as f32.
func TestSlotTypes(t *testing.T) {
	for _, c := range []struct {
		config string
		of     tensor.DType
		keeps  bool
		part   int // of the memory as f32
	}{
		{`"target_modules":"all-linear","r":4`, tensor.BF16, true, 2},
		{`"target_modules":"all-linear","r":4`, tensor.F16, true, 2},
		{`"target_modules":"all-linear","r":4`, tensor.F32, true, 1},
		{`"target_modules":"all-linear","r":4`, tensor.BF16, false, 1},
		{`"target_modules":["q_proj"],"r":4,"use_dora":true`, tensor.BF16, true, 1},
	} {
		x := newMixture(t, "../../testdata/peft/base/small-llama", backend.Options{Threads: 1}, nil, c.config)
		state := x.slots[0].State()
		config, tensors, err := state.Tensors(false)
		require.NoError(t, err)
		for i := range tensors {
			tensors[i].Tensor, err = tensors[i].Convert(c.of)
			require.NoError(t, err)
		}
		dir := filepath.Join(t.TempDir(), "adapter")
		require.NoError(t, lora.Save(dir, config, tensors))
		m := x.r.Model()
		a, err := lora.Load(dir)
		require.NoError(t, err)
		defer a.Close()
		s, err := state.Placement.StateOf(a, m)
		require.NoError(t, err)
		if c.keeps {
			s.KeepTypes(a)
		}
		slot, err := x.r.NewSlot(s)
		require.NoError(t, err)
		defer slot.Free()
		x.load(t, x.slots[0])
		x.load(t, slot)
		require.Equal(t, x.slots[0].Bytes(), c.part*slot.Bytes(), "%v", c)
		require.Equal(t, c.part == 1, x.slots[0].Shape() == slot.Shape(), "%v", c)
	}
}

// TestRoundFactors: factors of a plain adapter that are rounded for inference take half the memory, and a position for
// factors of that type. Other adapters are not rounded.
func TestRoundFactors(t *testing.T) {
	for config, part := range map[string]int{`"target_modules":"all-linear","r":4`: 2, `"target_modules":["q_proj"],"r":4,"use_dora":true`: 1} {
		x := newMixture(t, "../../testdata/peft/base/small-llama", backend.Options{Threads: 1}, nil, config)
		state := x.slots[0].State()
		rounded, err := state.RoundFactors(tensor.BF16)
		require.NoError(t, err)
		require.Equal(t, part == 1, state == rounded)
		slot, err := x.r.NewSlot(rounded)
		require.NoError(t, err)
		defer slot.Free()
		x.load(t, x.slots[0])
		x.load(t, slot)
		require.Equal(t, x.slots[0].Bytes(), part*slot.Bytes(), config)
		if part == 2 {
			require.Equal(t, []lora.FactorType{{Rank: 4, A: tensor.BF16, B: tensor.BF16}}, slot.Sizes())
			require.Equal(t, []lora.FactorType{{Rank: 4, A: tensor.F32, B: tensor.F32}}, x.slots[0].Sizes())
		}
	}
}
