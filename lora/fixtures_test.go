package lora_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// model lists the modules of a decoder as transformers names them, read off
// the weights in a folder.
func readModel(t testing.TB, dir string) lora.Model {
	t.Helper()
	var config struct {
		ModelType string         `json:"model_type"`
		Vision    map[string]any `json:"vision_config"`
	}
	readJSON(t, filepath.Join(dir, "config.json"), &config)
	// Others have other names in files, or store weights transposed.
	if config.Vision != nil || slices.ContainsFunc([]string{"mixtral", "qwen3_moe", "gpt", "gemma4"}, func(kind string) bool { return strings.HasPrefix(config.ModelType, kind) }) {
		m := openModel(t, dir)
		return lora.ModelOf(m.Config.ModelType, m.Modules())
	}
	m := lora.Model{Type: config.ModelType}
	file := openFile(t, filepath.Join(dir, "model.safetensors"))
	names := file.Names()
	slices.Sort(names)
	for _, name := range names {
		module, ok := strings.CutSuffix(name, ".weight")
		if !ok {
			continue
		}
		v, err := file.Lookup(name)
		require.NoError(t, err)
		row := lora.Module{Name: module, Bias: file.Has(module + ".bias")}
		switch {
		case len(v.Shape) == 1:
			row.Kind, row.In, row.Out = lora.Norm, v.Shape[0], v.Shape[0]
		case module == "model.embed_tokens":
			row.Kind, row.In, row.Out, row.InputEmbedding = lora.Embedding, v.Shape[0], v.Shape[1], true
		default:
			row.Kind, row.In, row.Out = lora.Linear, v.Shape[1], v.Shape[0]
			row.OutputEmbedding = module == "lm_head"
		}
		m.Modules = append(m.Modules, row)
	}
	if !file.Has("lm_head.weight") {
		e := m.Modules[slices.IndexFunc(m.Modules, func(m lora.Module) bool { return m.InputEmbedding })]
		m.Modules = append(m.Modules, lora.Module{Name: "lm_head", Kind: lora.Linear, In: e.Out, Out: e.In, OutputEmbedding: true, TiedTo: e.Name})
	}
	return m
}

func readJSON(t testing.TB, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, into))
}

func openFile(t testing.TB, path string) *safetensors.File {
	t.Helper()
	file, err := safetensors.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { file.Close() })
	return file
}

// floats reads a tensor as float32.
func floats(t testing.TB, file *safetensors.File, name string) []float32 {
	t.Helper()
	v, err := file.Lookup(name)
	require.NoError(t, err)
	d, err := tensor.ParseDType(v.DType.String())
	require.NoError(t, err)
	out := make([]float32, v.Len()/d.Size())
	require.NoError(t, v.WithBytes(func(data []byte) error { return tensor.ToFloat32(out, data, d) }))
	return out
}

// fixture is one adapter folder and the model that it belongs to.
type fixture struct {
	name, dir, model string
	begins           bool // before training: B may be zero
}

// fixtures are the adapters in the project's test data.
func fixtures(t testing.TB) []fixture {
	t.Helper()
	var all []fixture
	glob := func(pattern string) []string {
		dirs, err := filepath.Glob(filepath.FromSlash(pattern))
		require.NoError(t, err)
		require.NotEmpty(t, dirs, pattern)
		return dirs
	}
	for _, dir := range glob("../testdata/lm/*/adapters/*") {
		all = append(all, fixture{dir: dir, model: filepath.Join(dir, "../../model")})
	}
	for _, dir := range glob("../testdata/lm/*/train/*") {
		model := filepath.Join(dir, "../../model")
		all = append(all, fixture{dir: filepath.Join(dir, "init"), model: model, begins: true}, fixture{dir: filepath.Join(dir, "final"), model: model})
	}
	for _, dir := range glob("../testdata/peft/*/case.json") {
		dir = filepath.Dir(dir)
		var c struct{ Base string }
		readJSON(t, filepath.Join(dir, "case.json"), &c)
		model := filepath.Join(dir, c.Base)
		all = append(all, fixture{dir: filepath.Join(dir, "adapter"), model: model})
		for _, more := range []string{"train/init", "train/final", "converted/adapter"} {
			if _, err := os.Stat(filepath.Join(dir, more)); err == nil {
				all = append(all, fixture{dir: filepath.Join(dir, more), model: model, begins: more == "train/init"})
			}
		}
	}
	for i := range all {
		all[i].name = strings.TrimPrefix(filepath.ToSlash(all[i].dir), "../testdata/")
	}
	return all
}

func load(t testing.TB, dir string) *lora.Adapter {
	t.Helper()
	a, err := lora.Load(dir)
	require.NoError(t, err)
	t.Cleanup(func() { a.Close() })
	return a
}

// requireEqual compares the names, shapes and numbers of the tensors of two adapters.
func requireEqual(t testing.TB, want, got *lora.Adapter) {
	t.Helper()
	require.ElementsMatch(t, want.Names(), got.Names())
	for _, key := range want.Names() {
		x, _ := want.Tensor(key)
		y, _ := got.Tensor(key)
		require.Equal(t, x.Shape, y.Shape, key)
		v, err := want.Float32s(key)
		require.NoError(t, err)
		w, err := got.Float32s(key)
		require.NoError(t, err)
		require.Equal(t, v, w, key)
	}
}
