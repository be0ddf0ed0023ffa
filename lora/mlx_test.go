package lora_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
)

// deltas returns scale·B·A of the targets of an adapter, in float64.
func deltas(t *testing.T, a *lora.Adapter, p *lora.Placement) map[string][]float64 {
	all := map[string][]float64{}
	for _, x := range p.Targets {
		w, err := a.Weights(x)
		require.NoError(t, err)
		d := make([]float64, x.In*x.Out)
		for o := range x.Out {
			for r := range x.Rank {
				for i := range x.In {
					d[o*x.In+i] += x.Scale * float64(w[lora.RoleB][o*x.Rank+r]) * float64(w[lora.RoleA][r*x.In+i])
				}
			}
		}
		all[x.Name] = d
	}
	return all
}

// An adapter that is written for MLX and read again changes the weights as before, with the layout
// and the scale of mlx-lm's LoRALinear: W + scale·(lora_a·lora_b)ᵀ.
func TestMLX(t *testing.T) {
	for _, name := range []string{"lora", "patterns"} {
		t.Run(name, func(t *testing.T) {
			root := "../testdata/lm/llama"
			a, err := lora.Load(filepath.Join(root, "adapters", name))
			require.NoError(t, err)
			defer a.Close()
			m, err := model.Open(filepath.Join(root, "model"))
			require.NoError(t, err)
			defer m.Close()
			of := lora.ModelOf(m.Config.ModelType, m.Modules())
			p, err := lora.NewPlacement(a.Config, of)
			require.NoError(t, err)
			var names []string
			for _, module := range m.Modules() {
				names = append(names, module.Name)
			}
			dir := t.TempDir()
			require.NoError(t, lora.SaveMLX(dir, a, p, names))
			require.True(t, lora.IsMLX(dir))
			want := deltas(t, a, p)

			back, err := lora.Load(dir)
			require.NoError(t, err)
			again, _, err := back.Place(of, nil, lora.CheckOptions{})
			require.NoError(t, err)
			got := deltas(t, back, again)
			require.Len(t, got, len(want))
			for target, d := range want {
				assert.InDeltaSlice(t, d, got[target], 1e-6, target)
			}

			// The formula of mlx-lm, from the file itself.
			f, err := safetensors.Open(filepath.Join(dir, lora.MLXWeightsFile))
			require.NoError(t, err)
			defer f.Close()
			x := p.Targets[0]
			down, up := view(t, f, x.Name+".lora_a"), view(t, f, x.Name+".lora_b")
			rank := len(down) / x.In
			for o := range x.Out {
				for i := range x.In {
					sum := 0.0
					for r := range rank {
						sum += float64(down[i*rank+r]) * float64(up[r*x.Out+o])
					}
					require.InDelta(t, want[x.Name][o*x.In+i], x.Scale*sum, 1e-6)
				}
			}
		})
	}
}

func view(t *testing.T, f *safetensors.File, name string) []float32 {
	v, err := f.Lookup(name)
	require.NoError(t, err)
	x, err := safetensors.As[float32](v)
	require.NoError(t, err)
	return x
}

// Folders of MLX that cannot be read are refused with the key, what was found and what was expected.
func TestMLXBroken(t *testing.T) {
	entry := func(name string, shape ...int) safetensors.Entry {
		return safetensors.Entry{Name: name, DType: safetensors.F32, Shape: shape, Data: make([]byte, 4*shape[0]*shape[1])}
	}
	const q = "model.layers.0.self_attn.q_proj"
	for text, c := range map[string]struct {
		config  string
		entries []safetensors.Entry
	}{
		`fine_tune_type: found "dora", expected lora`:         {`{"fine_tune_type":"dora","lora_parameters":{"rank":2,"scale":1}}`, nil},
		"rank: found 0, expected 1 or more":                   {`{"lora_parameters":{"scale":1}}`, nil},
		"scale: found 0, expected a number":                   {`{"lora_parameters":{"rank":2}}`, nil},
		"adapters.safetensors, which mlx-lm writes":           {`{"lora_parameters":{"rank":2,"scale":1}}`, nil},
		"found [2 8], expected [inputs, rank] of the rank 2":  {`{"lora_parameters":{"rank":2,"scale":1}}`, []safetensors.Entry{entry(q+".lora_a", 2, 8)}},
		"found [8 2], expected [rank, outputs] of the rank 2": {`{"lora_parameters":{"rank":2,"scale":1}}`, []safetensors.Entry{entry(q+".lora_b", 8, 2)}},
		".m\": tensor matches no target":                      {`{"lora_parameters":{"rank":2,"scale":1}}`, []safetensors.Entry{entry(q+".m", 8, 2)}},
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, lora.ConfigFile), []byte(c.config), 0o666))
		if c.entries != nil {
			require.NoError(t, safetensors.WriteFile(filepath.Join(dir, lora.MLXWeightsFile), c.entries, nil))
		}
		_, err := lora.Load(dir)
		require.Error(t, err)
		t.Log(err)
		assert.ErrorContains(t, err, text)
	}
}

// In old files of mlx-lm the scale is multiplied by alpha/rank.
func TestMLXAlpha(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, lora.ConfigFile), []byte(`{"lora_parameters":{"rank":4,"alpha":16,"scale":10,"dropout":0}}`), 0o666))
	data := make([]byte, 4*32)
	require.NoError(t, safetensors.WriteFile(filepath.Join(dir, lora.MLXWeightsFile), []safetensors.Entry{
		{Name: "model.layers.1.mlp.up_proj.lora_a", DType: safetensors.F32, Shape: []int{8, 4}, Data: data},
		{Name: "model.layers.1.mlp.up_proj.lora_b", DType: safetensors.F32, Shape: []int{4, 8}, Data: data},
	}, nil))
	a, err := lora.Load(dir)
	require.NoError(t, err)
	assert.Equal(t, 160.0, a.Config.LoraAlpha)
	assert.Equal(t, []string{"model.layers.1.mlp.up_proj"}, a.Config.TargetModules.Names)
}
