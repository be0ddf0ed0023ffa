package merge

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// The golden cases that the whole project shares.
const (
	llama     = "../../testdata/lm/llama/model"
	llamaLoRA = "../../testdata/lm/llama/adapters/lora"
	peft      = "../../testdata/peft"
)

// source is an open model with its adapter.
type source struct {
	model   *model.Model
	adapter *lora.Adapter
	plan    *lora.Placement
}

func open(t testing.TB, modelDir, adapterDir string) source {
	t.Helper()
	m, err := model.Open(modelDir)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	a, err := lora.Load(adapterDir)
	require.NoError(t, err)
	t.Cleanup(func() { a.Close() })
	p, err := lora.NewPlacement(a.Config, lora.ModelOf(m.Config.ModelType, m.Modules()))
	require.NoError(t, err)
	require.NoError(t, a.Check(p, lora.CheckOptions{}).Err())
	return source{m, a, p}
}

// write merges into dir/merged.
func (s source) write(t testing.TB, dir string, o Options) (*Result, error) {
	return Write(t.Context(), filepath.Join(dir, "merged"), s.model, s.adapter, s.plan, o)
}

// merged merges into a new folder and gives its path.
func (s source) merged(t testing.TB, o Options) (string, *Result) {
	t.Helper()
	dir := t.TempDir()
	r, err := s.write(t, dir, o)
	require.NoError(t, err)
	return filepath.Join(dir, "merged"), r
}

// copyFolder copies the files of a folder into a new one.
func copyFolder(t testing.TB, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "model")
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
	return to
}

func writeFile(t testing.TB, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o666))
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(raw)
}

func readObject(t testing.TB, path string) map[string]any {
	t.Helper()
	var all map[string]any
	require.NoError(t, json.Unmarshal([]byte(readFile(t, path)), &all))
	return all
}

// rewrite writes a file of weights anew: change gives what becomes of an entry.
func rewrite(t testing.TB, path string, change func(safetensors.Entry) []safetensors.Entry) {
	t.Helper()
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	var entries []safetensors.Entry
	for _, name := range f.Names() {
		v, err := f.Lookup(name)
		require.NoError(t, err)
		e := v.Entry()
		e.Data, e.Write = append([]byte(nil), v.Bytes()...), nil
		entries = append(entries, change(e)...)
	}
	require.NoError(t, f.Close())
	require.NoError(t, safetensors.WriteFile(path, entries, nil))
}

// weightsOf reads all tensors of a model as float32.
func weightsOf(t testing.TB, dir string) map[string][]float32 {
	t.Helper()
	set, err := safetensors.OpenModel(dir)
	require.NoError(t, err)
	defer set.Close()
	all := map[string][]float32{}
	for _, name := range set.Names() {
		v, err := set.Lookup(name)
		require.NoError(t, err)
		d, err := tensor.ParseDType(v.DType.String())
		require.NoError(t, err)
		all[name] = make([]float32, v.Len()/d.Size())
		require.NoError(t, v.WithBytes(func(data []byte) error { return tensor.ToFloat32(all[name], data, d) }))
	}
	return all
}
