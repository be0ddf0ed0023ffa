package dialects_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/gguf"
	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// textForms is written by scripts/make_text_adapter_goldens.py.
const (
	textForms = "testdata/text/"
	textModel = "../../../testdata/lm/llama/"
)

func openText(t testing.TB) *model.Model {
	t.Helper()
	m, err := model.Open(textModel + "model")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// place opens an adapter of any form and places it in a model.
func place(t testing.TB, path string, m *model.Model) (*lora.Adapter, *lora.Placement) {
	t.Helper()
	a, err := dialects.OpenText(path, m)
	require.NoError(t, err, path)
	p, _, err := a.Place(lora.ModelOf(m.Config.ModelType, m.Modules()), nil, lora.CheckOptions{})
	require.NoError(t, err, path)
	return a, p
}

// equalAdapters compares the factors and scales of all targets; B is multiplied by its scale if folded.
func equalAdapters(t *testing.T, want, got string, m *model.Model, delta float64, folded bool) {
	t.Helper()
	a, p := place(t, want, m)
	b, q := place(t, got, m)
	require.Len(t, q.Targets, len(p.Targets), got)
	for _, x := range p.Targets {
		y, ok := q.Target(x.Name)
		require.True(t, ok, x.Name)
		u, err := a.Weights(x)
		require.NoError(t, err)
		v, err := b.Weights(y)
		require.NoError(t, err)
		if !folded {
			require.Equal(t, x.Rank, y.Rank)
			require.InDelta(t, x.Scale, y.Scale, 1e-7, "%s of %s", x.Name, got)
		}
		require.InDeltaSlice(t, u[lora.RoleA], v[lora.RoleA][:len(u[lora.RoleA])], delta, x.Name)
		for o := range x.Out {
			for k := range x.Rank {
				require.InDelta(t, x.Scale*float64(u[lora.RoleB][o*x.Rank+k]), y.Scale*float64(v[lora.RoleB][o*y.Rank+k]), delta, "%s of %s", x.Name, got)
			}
		}
	}
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}

// Files of llama.cpp, torchtune and programs that compute x·A·B have PEFT's weights and scales.
func TestTextForms(t *testing.T) {
	m := openText(t)
	for _, form := range []string{"lora.gguf", "torchtune", "mlx-names.safetensors"} {
		equalAdapters(t, textForms+"peft", textForms+form, m, 0, false)
	}
	// Without alpha, llama.cpp's scale is 1.
	a, p := place(t, textForms+"lora-f16.gguf", m)
	require.Equal(t, 1.0, p.Targets[0].Scale)
	b, q := place(t, textForms+"lora.gguf", m)
	for i, x := range p.Targets {
		u, err := a.Weights(x)
		require.NoError(t, err)
		v, err := b.Weights(q.Targets[i])
		require.NoError(t, err)
		require.InEpsilonSlice(t, v[lora.RoleB], u[lora.RoleB], 1e-3)
	}
}

// What is written in a form is read back with equal products, also with ranks and scales of
// single layers.
func TestTextFormsRoundTrip(t *testing.T) {
	m := openText(t)
	for _, from := range []string{textForms + "peft", textModel + "adapters/lora", textModel + "adapters/patterns"} {
		dir := t.TempDir()
		a, p := place(t, from, m)
		_, err := dialects.WriteGGUF(filepath.Join(dir, "a.gguf"), m, a, p)
		require.NoError(t, err)
		equalAdapters(t, from, dir, m, 1e-7, true) // the folder of the file
		equalAdapters(t, from, filepath.Join(dir, "a.gguf"), m, 1e-7, true)
		plain := filepath.Join(dir, "a.safetensors")
		require.NoError(t, dialects.WritePlain(plain, a, p))
		equalAdapters(t, from, plain, m, 0, false)
		var names []string
		for _, x := range m.Modules() {
			names = append(names, x.Name)
		}
		require.NoError(t, lora.SaveMLX(filepath.Join(dir, "mlx"), a, p, names))
		equalAdapters(t, from, filepath.Join(dir, "mlx"), m, 1e-7, true)
		_, text, err := dialects.Detect(filepath.Join(dir, "mlx"))
		require.NoError(t, err)
		require.True(t, text)
	}
}

// A folder of PEFT is opened without reading the header of its weights twice.
func TestTextReadsOnce(t *testing.T) {
	m := openText(t)
	dir := t.TempDir()
	config, err := lora.ReadConfig(textForms + "peft")
	require.NoError(t, err)
	var tensors []lora.Tensor
	for i := range 500 {
		x, err := tensor.FromFloat32s([]float32{1, 2}, 1, 2)
		require.NoError(t, err)
		tensors = append(tensors, lora.Tensor{Key: fmt.Sprintf("base_model.model.layers.%d.lora_A.weight", i), Tensor: x})
	}
	require.NoError(t, lora.Save(dir, config, tensors))
	allocations := func(open func() (*lora.Adapter, error)) float64 {
		return testing.AllocsPerRun(3, func() {
			a, err := open()
			require.NoError(t, err)
			require.Len(t, a.Names(), 500)
			require.NoError(t, a.Close())
		})
	}
	once := allocations(func() (*lora.Adapter, error) { return lora.Load(dir) })
	require.Greater(t, once, 500.0)
	require.Less(t, allocations(func() (*lora.Adapter, error) { return dialects.OpenText(dir, m) }), once+50)
	require.Less(t, allocations(func() (*lora.Adapter, error) {
		a, text, err := dialects.Detect(dir)
		require.False(t, text)
		return a, err
	}), once+50)

	load := func(o lora.RegistryOptions) float64 { // fails for want of such layers, after it has read the files
		r, err := lora.NewRegistry(m, m.Config.ModelType, m.Modules(), o)
		require.NoError(t, err)
		defer r.Close()
		return testing.AllocsPerRun(3, func() {
			_, err := r.Load(t.Context(), "a", dir)
			require.Error(t, err)
		})
	}
	require.Less(t, load(lora.RegistryOptions{Open: dialects.Opener(m)}), load(lora.RegistryOptions{})+50)
}

// TestDetect: forms that only OpenText reads are told from folders of PEFT and other files.
func TestDetect(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.CopyFS(folder, os.DirFS(textForms+"peft")))
	raw, err := os.ReadFile(textForms + "mlx-names.safetensors")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, lora.WeightsFile), raw, 0o666))
	for path, want := range map[string]struct{ text, opened bool }{
		textForms + "peft":                             {false, true},
		textForms + "peft/adapter_model.safetensors":   {false, true},
		textForms + "lora.gguf":                        {true, false},
		textForms + "mlx-names.safetensors":            {true, false},
		folder:                                         {true, false}, // plain layers beside a configuration of PEFT
		"../../../testdata/lm/llama/model/config.json": {false, false},
	} {
		a, text, err := dialects.Detect(path)
		require.NoError(t, err, path)
		require.Equal(t, want.text, text, path)
		require.Equal(t, want.opened, a != nil, path)
		if a != nil {
			require.NoError(t, a.Close())
		}
	}
	_, _, err = dialects.Detect("missing")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A registry loads adapters of these forms by their paths.
func TestTextFormsServed(t *testing.T) {
	m := openText(t)
	r, err := lora.NewRegistry(m, m.Config.ModelType, m.Modules(), lora.RegistryOptions{Open: dialects.Opener(m)})
	require.NoError(t, err)
	defer r.Close()
	want, err := r.Load(t.Context(), "peft", textForms+"peft")
	require.NoError(t, err)
	for _, form := range []string{"lora.gguf", "torchtune", "mlx-names.safetensors"} {
		got, err := r.Load(t.Context(), form, textForms+form)
		require.NoError(t, err)
		require.Equal(t, want.Digest(), got.Digest(), form)
	}
	_, err = r.Load(t.Context(), "missing", textForms+"missing.gguf")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Files that do not fit are rejected by name.
func TestTextFormsErrors(t *testing.T) {
	m := openText(t)
	qwen, err := model.Open("../../../testdata/lm/qwen2/model")
	require.NoError(t, err)
	defer qwen.Close()
	_, err = dialects.OpenText(textForms+"lora.gguf", qwen)
	require.ErrorIs(t, err, lora.ErrConfig)
	require.ErrorContains(t, err, `general.architecture: found "llama", expected "qwen2"`)
	_, err = dialects.OpenText("../../gguf/testdata/blocks.gguf", m)
	require.ErrorContains(t, err, "general.type")

	write := func(name string, metadata map[string]string, tensors map[string][]int) string {
		path := filepath.Join(t.TempDir(), name)
		var entries []safetensors.Entry
		for key, shape := range tensors {
			n := 1
			for _, d := range shape {
				n *= d
			}
			entries = append(entries, safetensors.Entry{Name: key, DType: safetensors.F32, Shape: shape, Data: make([]byte, 4*n)})
		}
		require.NoError(t, safetensors.WriteFile(path, entries, metadata))
		return path
	}
	const q = "model.layers.0.self_attn.q_proj"
	alpha := map[string]string{"lora_alpha": "8"}
	for says, x := range map[string]struct {
		metadata map[string]string
		tensors  map[string][]int
	}{
		"alpha: expected tensors MODULE.alpha":             {nil, map[string][]int{q + ".lora_a": {64, 4}, q + ".lora_b": {4, 64}}},
		`lora_alpha in the metadata: found "x"`:            {map[string]string{"lora_alpha": "x"}, map[string][]int{q + ".lora_a": {64, 4}, q + ".lora_b": {4, 64}}},
		"no lora_a or no lora_b":                           {alpha, map[string][]int{q + ".lora_a": {64, 4}}},
		"or both transposed":                               {alpha, map[string][]int{q + ".lora_a": {64, 4}, q + ".lora_b": {64, 4}}},
		"expected two dimensions":                          {alpha, map[string][]int{q + ".lora_a": {64, 4, 1}, q + ".lora_b": {4, 64}}},
		`the model has no linear layer "model.layers.9.x"`: {alpha, map[string][]int{"model.layers.9.x.lora_a": {64, 4}}},
		"expected an end such as":                          {alpha, map[string][]int{q + ".lora_a": {64, 4}, q + ".magnitude": {4}}},
		"has the same place":                               {alpha, map[string][]int{q + ".lora_a": {64, 4}, q + ".lora_a.weight": {4, 64}}},
		"others [in, rank] and [rank, out]": {alpha, map[string][]int{
			q + ".lora_a": {64, 4}, q + ".lora_b": {4, 64}, "layers.1.mlp.w1.lora_a.weight": {4, 64}, "layers.1.mlp.w1.lora_b.weight": {128, 4},
		}},
	} {
		_, err := dialects.OpenText(write("x.safetensors", x.metadata, x.tensors), m)
		require.ErrorContains(t, err, says)
	}
	path := write("x.safetensors", nil, map[string][]int{q + ".weight": {4, 4}})
	_, err = dialects.OpenText(path, m)
	require.ErrorIs(t, err, lora.ErrUnsupported)

	dir := t.TempDir()
	gguf.Write(filepath.Join(dir, "x.gguf"), []gguf.KeyValue{
		{Key: "general.architecture", Value: "llama"}, {Key: "general.type", Value: "adapter"}, {Key: "adapter.type", Value: "lora"},
		{Key: "adapter.alora.invocation_tokens", Value: []uint32{1}},
	}, nil)
	_, err = dialects.OpenText(dir, m)
	require.ErrorIs(t, err, lora.ErrUnsupported)
	require.ErrorContains(t, err, "adapter.alora.invocation_tokens")
}

// Opening never panics.
func FuzzOpenText(f *testing.F) {
	for _, name := range []string{"lora.gguf", "lora-f16.gguf", "mlx-names.safetensors", "torchtune/adapter_model.bin"} {
		data, err := os.ReadFile(textForms + name)
		require.NoError(f, err)
		f.Add(data)
	}
	m := openText(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "x.gguf")
		require.NoError(t, os.WriteFile(path, data, 0o666))
		if a, err := dialects.OpenText(path, m); err == nil {
			require.NoError(t, a.Close())
		}
	})
}
