package lora_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// What PEFT saved is saved again byte for byte.
func TestSaveAsPEFT(t *testing.T) {
	for _, f := range fixtures(t) {
		t.Run(f.name, func(t *testing.T) {
			a := load(t, f.dir)
			var tensors []lora.Tensor
			names := a.Names()
			for i := range names { // the order is not the caller's concern
				v, _ := a.Tensor(names[len(names)-1-i])
				tensors = append(tensors, lora.Tensor{Key: names[len(names)-1-i], Tensor: v})
			}
			dir := filepath.Join(t.TempDir(), "new")
			require.NoError(t, lora.Save(dir, a.Config, tensors))
			if a.Source.Fallback { // saved by torch.save: the same tensors, in another file
				requireEqual(t, a, load(t, dir))
				return
			}
			want, err := os.ReadFile(filepath.Join(f.dir, lora.WeightsFile))
			require.NoError(t, err)
			got, err := os.ReadFile(filepath.Join(dir, lora.WeightsFile))
			require.NoError(t, err)
			assert.True(t, string(want) == string(got), "the bytes of the weights differ")
			config, err := os.ReadFile(filepath.Join(dir, lora.ConfigFile))
			require.NoError(t, err)
			assert.Equal(t, string(a.Config.JSON()), string(config))
		})
	}
}

func TestSaveWeights(t *testing.T) {
	p := place(t, `"target_modules":["k_proj","embed_tokens"],"use_dora":true,"r":2`, decoder(false))
	dir := t.TempDir()
	var tensors []lora.Tensor
	written := map[string]lora.Weights{}
	for _, target := range p.Targets {
		w := initialize(t, target, 1, ones(target.In*target.Out))
		for i := range w[lora.RoleB] {
			w[lora.RoleB][i] = float32(i) / 3
		}
		w[lora.RoleA][0] = 7
		written[target.Name] = w
		own, err := w.Tensors(target)
		require.NoError(t, err)
		tensors = append(tensors, own...)
	}
	require.NoError(t, lora.Save(dir, p.Config(), tensors))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600))

	a := load(t, dir)
	require.NoError(t, a.Check(p, lora.CheckOptions{}).Err())
	for _, target := range p.Targets {
		w, err := a.Weights(target)
		require.NoError(t, err)
		assert.Equal(t, written[target.Name], w)
	}
	require.NoError(t, a.Close())
	require.NoError(t, lora.Save(dir, p.Config(), tensors[:3]))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, entries, 3, "other files stay, no temporary ones do")

	w := written["model.embed_tokens"]
	w[lora.RoleA] = w[lora.RoleA][:1]
	_, err = w.Tensors(p.Targets[0])
	require.ErrorIs(t, err, lora.ErrShape)
	_, err = load(t, dir).Weights(lora.Target{Module: p.Targets[0].Module, Rank: 3})
	require.ErrorIs(t, err, lora.ErrShape)
}

func ones(n int) []float32 {
	values := make([]float32, n)
	for i := range values {
		values[i] = 1
	}
	return values
}

// A save that fails leaves the old adapter, or nothing.
func TestSaveFailure(t *testing.T) {
	c := lora.DefaultConfig()
	good := []lora.Tensor{{Key: "a", Tensor: ramp(t, 2)}}
	bad := []lora.Tensor{{Key: "a", Tensor: tensor.Tensor{DType: tensor.F32, Shape: []int{3}, Data: make([]byte, 8)}}}

	dir := filepath.Join(t.TempDir(), "adapter")
	require.Error(t, lora.Save(dir, c, bad))
	_, err := os.Stat(dir)
	require.ErrorIs(t, err, fs.ErrNotExist, "no empty folder stays")

	require.NoError(t, lora.Save(dir, c, good))
	before := contents(t, dir)
	require.Error(t, lora.Save(dir, c, bad))
	bads := *c
	bads.R = 0
	require.ErrorIs(t, lora.Save(dir, &bads, good), lora.ErrConfig)
	require.Error(t, lora.Save(dir, c, []lora.Tensor{{Key: "a", Tensor: tensor.Tensor{}}}))
	assert.Equal(t, before, contents(t, dir))

	// The weights cannot take their name: the old configuration stays.
	other := c.Clone()
	other.R = 3
	require.NoError(t, os.Remove(filepath.Join(dir, lora.WeightsFile)))
	require.NoError(t, os.Mkdir(filepath.Join(dir, lora.WeightsFile), 0o700))
	require.Error(t, lora.Save(dir, other, good))
	assert.Equal(t, before[lora.ConfigFile], contents(t, dir)[lora.ConfigFile])

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.Error(t, lora.Save(file, c, good))
}

func contents(t *testing.T, dir string) map[string]string {
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if !e.IsDir() {
			data, err := os.ReadFile(filepath.Join(dir, e.Name()))
			require.NoError(t, err)
			files[e.Name()] = string(data)
		}
	}
	return files
}
