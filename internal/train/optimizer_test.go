package train_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/safetensors"
)

// wide has adapters of which some have 4096 numbers, whose moments 8 bits suffice for.
var wide = []string{"adapter.r=64", "adapter.lora_alpha=64", "optimizer=adamw_8bit", "learning_rate=0.001"}

// With moments of 8 bits a run learns as with those of 32, in less memory, and keeps codes
// and scales in its checkpoints.
func TestEightBitMoments(t *testing.T) {
	rows := countingRows(40)
	var plans []train.Memory
	var all [][]float64
	for _, optimizer := range []string{"adamw", "adamw_8bit"} {
		c := configure(t, t.TempDir(), rows, append(wide, "optimizer="+optimizer, "save_steps=3")...)
		r, err := train.New(context.Background(), c, train.Observer{})
		require.NoError(t, err)
		plans = append(plans, r.Memory())
		r.Close()
		all = append(all, losses(t, c))
	}
	require.Len(t, all[0], 6)
	assert.InDeltaSlice(t, all[0], all[1], 0.05)
	assert.NotEqual(t, all[0], all[1])
	assert.Less(t, all[1][5], all[1][0])
	assert.Equal(t, plans[0].Adapter, plans[1].Adapter)
	assert.Less(t, plans[1].Optimizer, plans[0].Optimizer*2/3)
	assert.Less(t, plans[1].Saving, plans[0].Saving*2/3)
}

// What a checkpoint holds of an optimizer of 8 bits is a byte for each moment and a scale
// for each 256, and a run goes on from it to the same bits.
func TestEightBitResume(t *testing.T) {
	rows := countingRows(40)
	c := configure(t, t.TempDir(), rows, append(wide, "save_steps=3", "save_limit=0")...)
	want := runToEnd(t, c)

	f, err := safetensors.Open(filepath.Join(c.OutputDir, "checkpoint-3", "optimizer.safetensors"))
	require.NoError(t, err)
	const key = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
	for name, d := range map[string]safetensors.DType{"moment1.": safetensors.U8, "moment2.": safetensors.U8, "scale1.": safetensors.F32, "scale2.": safetensors.F32} {
		v, err := f.Lookup(name + key)
		require.NoError(t, err)
		assert.Equal(t, d, v.DType, name)
	}
	require.NoError(t, f.Close())

	other := configure(t, t.TempDir(), rows, append(wide, "save_steps=3", "save_limit=0")...)
	require.NoError(t, os.MkdirAll(other.OutputDir, 0o777))
	require.NoError(t, os.CopyFS(filepath.Join(other.OutputDir, "checkpoint-3"), os.DirFS(filepath.Join(c.OutputDir, "checkpoint-3"))))
	other.Resume = "latest"
	assert.Equal(t, want, runToEnd(t, other))

	other.Optimizer = "adamw"
	other.Resume = filepath.Join(other.OutputDir, "checkpoint-3")
	_, err = train.New(context.Background(), other, train.Observer{})
	require.ErrorIs(t, err, train.ErrCheckpoint)
	require.ErrorContains(t, err, "optimizer was adamw_8bit, is now adamw")
}
