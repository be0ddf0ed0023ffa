package cli

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	_ "github.com/lorafuse/lorafuse/backend/all"
	"github.com/lorafuse/lorafuse/safetensors"
)

// The golden cases that the whole project shares.
const (
	goldens     = "../../../testdata"
	llama       = goldens + "/lm/llama/model"
	llamaLoRA   = goldens + "/lm/llama/adapters/lora"
	llamaGolden = goldens + "/lm/llama/golden.safetensors"
)

// result is what a command line did.
type result struct {
	status         int
	stdout, stderr string
}

// command runs a command line in this process.
func command(t testing.TB, stdin string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	status := Run(t.Context(), args, strings.NewReader(stdin), &out, &errs)
	return result{status, out.String(), errs.String()}
}

// succeed runs a command line that must work, and gives its output.
func succeed(t testing.TB, args ...string) string {
	t.Helper()
	r := command(t, "", args...)
	require.Equal(t, ExitOK, r.status, r.stderr)
	return r.stdout
}

// lab is a folder to break things in.
type lab struct {
	t   *testing.T
	dir string
}

func newLab(t *testing.T) *lab { return &lab{t, t.TempDir()} }

func (l *lab) path(name string) string { return filepath.Join(l.dir, name) }

// file writes a file and gives its path.
func (l *lab) file(name, content string) string {
	path := l.path(name)
	require.NoError(l.t, os.MkdirAll(filepath.Dir(path), 0o777))
	require.NoError(l.t, os.WriteFile(path, []byte(content), 0o666))
	return path
}

// copy copies a folder of the golden cases, without what lies deeper.
func (l *lab) copy(from, name string) string {
	to := l.path(name)
	require.NoError(l.t, os.MkdirAll(to, 0o777))
	entries, err := os.ReadDir(from)
	require.NoError(l.t, err)
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(from, e.Name()))
		require.NoError(l.t, err)
		require.NoError(l.t, os.WriteFile(filepath.Join(to, e.Name()), raw, 0o666))
	}
	return to
}

func (l *lab) model() string   { return l.copy(llama, "model") }
func (l *lab) adapter() string { return l.copy(llamaLoRA, "adapter") }

func (l *lab) remove(path string) { require.NoError(l.t, os.Remove(path)) }

// setJSON sets keys of a JSON file; nil removes one.
func (l *lab) setJSON(path string, changes map[string]any) {
	raw, err := os.ReadFile(path)
	require.NoError(l.t, err)
	all := map[string]any{}
	require.NoError(l.t, json.Unmarshal(raw, &all))
	for k, v := range changes {
		if all[k] = v; v == nil {
			delete(all, k)
		}
	}
	raw, err = json.Marshal(all)
	require.NoError(l.t, err)
	require.NoError(l.t, os.WriteFile(path, raw, 0o666))
}

// truncate cuts the last bytes off a file.
func (l *lab) truncate(path string, bytes int64) {
	info, err := os.Stat(path)
	require.NoError(l.t, err)
	require.NoError(l.t, os.Truncate(path, info.Size()-bytes))
}

// tensors rewrites a safetensors file: change may alter an entry, and leaves
// out one by returning false.
func (l *lab) tensors(path string, change func(e *safetensors.Entry) bool) {
	f, err := safetensors.Open(path)
	require.NoError(l.t, err)
	var entries []safetensors.Entry
	for _, name := range f.Names() {
		v, err := f.Lookup(name)
		require.NoError(l.t, err)
		e := safetensors.Entry{Name: name, DType: v.DType, Shape: slices.Clone(v.Shape), Data: bytes.Clone(v.Bytes())}
		if change(&e) {
			entries = append(entries, e)
		}
	}
	require.NoError(l.t, f.Close())
	require.NoError(l.t, safetensors.WriteFile(path, entries, map[string]string{"format": "pt"}))
}

// write makes a safetensors file of int64 and float32 tensors.
func (l *lab) write(name string, entries ...safetensors.Entry) string {
	path := l.path(name)
	require.NoError(l.t, safetensors.WriteFile(path, entries, nil))
	return path
}

func ints(name string, values []int64, shape ...int) safetensors.Entry {
	var data []byte
	for _, v := range values {
		for i := range 8 {
			data = append(data, byte(v>>(8*i)))
		}
	}
	return safetensors.Entry{Name: name, DType: safetensors.I64, Shape: shape, Data: data}
}

func floats(name string, values []float32, shape ...int) safetensors.Entry {
	var data []byte
	for _, v := range values {
		u := math.Float32bits(v)
		data = append(data, byte(u), byte(u>>8), byte(u>>16), byte(u>>24))
	}
	return safetensors.Entry{Name: name, DType: safetensors.F32, Shape: shape, Data: data}
}

// nan is a change for tensors: a NaN in the first element of one of them.
func nan(name string) func(e *safetensors.Entry) bool {
	return func(e *safetensors.Entry) bool {
		if e.Name == name {
			copy(e.Data, []byte{0, 0, 0xc0, 0x7f})
		}
		return true
	}
}

// settings is the YAML of a short run.
func (l *lab) settings(model, more string) string {
	l.file("train.jsonl", `{"text": "the quick brown fox"}`+"\n"+`{"text": "jumps over the lazy dog"}`+"\n")
	return l.file("train.yaml", "model: "+model+"\noutput_dir: "+l.path("output")+"\nsteps: 3\ndata:\n  train: "+l.path("train.jsonl")+"\n"+more)
}

// tree lists all that is in the lab with its contents.
func (l *lab) tree() map[string]string {
	all := map[string]string{}
	require.NoError(l.t, filepath.WalkDir(l.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			all[path] = "folder"
			return err
		}
		raw, err := os.ReadFile(path)
		all[path] = string(raw)
		return err
	}))
	return all
}
