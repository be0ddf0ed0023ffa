package convert

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

func le[T any](values ...T) []byte {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, values); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// write makes a file and gives its path.
func write(t testing.TB, path string, metadata map[string]string, entries ...safetensors.Entry) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
	require.NoError(t, safetensors.WriteFile(path, entries, metadata))
	return path
}

func open(t testing.TB, path string) *weights.Set {
	t.Helper()
	s, err := weights.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// content is all tensors with their types and bytes.
func content(t testing.TB, path string) map[string]safetensors.Entry {
	t.Helper()
	s := open(t, path)
	all := map[string]safetensors.Entry{}
	views, err := s.Views()
	require.NoError(t, err)
	for _, v := range views {
		all[v.Name] = safetensors.Entry{DType: v.DType, Shape: append([]int{}, v.Shape...), Data: bytes.Clone(v.Bytes())}
	}
	return all
}

// mixed is a file with tensors of every kind.
func mixed(t testing.TB, path string) string {
	return write(t, path, map[string]string{"format": "pt", "step": "7"},
		safetensors.Entry{Name: "w", DType: safetensors.F32, Shape: []int{2, 3}, Data: le[float32](1, -2.5, 1e-3, 0, 70000, float32(math.NaN()))},
		safetensors.Entry{Name: "h", DType: safetensors.F16, Shape: []int{2}, Data: le[uint16](0x3c00, 0xfc00)},
		safetensors.Entry{Name: "d", DType: safetensors.F64, Shape: []int{}, Data: le(math.Pi)},
		safetensors.Entry{Name: "norm.weight", DType: safetensors.F32, Shape: []int{1}, Data: le[float32](1.0001)},
		safetensors.Entry{Name: "ids", DType: safetensors.I64, Shape: []int{2}, Data: le[int64](-1, 1<<60)},
		safetensors.Entry{Name: "mask", DType: safetensors.Bool, Shape: []int{3}, Data: []byte{0, 1, 1}},
		safetensors.Entry{Name: "z", DType: safetensors.C64, Shape: []int{1}, Data: le[float32](1, 2)},
		safetensors.Entry{Name: "q", DType: safetensors.F4, Shape: []int{2}, Data: []byte{0x31}},
		safetensors.Entry{Name: "scale", DType: safetensors.F8E8M0, Shape: []int{1}, Data: []byte{127}},
		safetensors.Entry{Name: "empty", DType: safetensors.F32, Shape: []int{0, 4}})
}

func TestFileKeepsEverything(t *testing.T) {
	dir := t.TempDir()
	in := mixed(t, filepath.Join(dir, "in.safetensors"))
	r, err := File(t.Context(), filepath.Join(dir, "out.safetensors"), open(t, in), Options{})
	require.NoError(t, err)
	assert.Equal(t, &Result{Tensors: 10, BytesIn: r.BytesIn, BytesOut: r.BytesIn, Files: []string{"out.safetensors"}, Verified: true}, r)
	want, err := os.ReadFile(in)
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(dir, "out.safetensors"))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(want, got), "the same tensors and metadata give the same bytes")
}

func TestDTypes(t *testing.T) {
	dir := t.TempDir()
	in := mixed(t, filepath.Join(dir, "in.safetensors"))
	was := content(t, in)
	for _, d := range Types() {
		out := filepath.Join(dir, d.String()+".safetensors")
		r, err := File(t.Context(), out, open(t, in), Options{DType: d, Keep: func(name string) bool { return name == "norm.weight" }})
		require.NoError(t, err, d)
		assert.True(t, r.Verified)
		for name, e := range content(t, out) {
			from, isFloat := map[string]tensor.DType{"w": tensor.F32, "h": tensor.F16, "d": tensor.F64, "empty": tensor.F32}[name]
			if !isFloat {
				assert.Equal(t, was[name], e, "%v %s", d, name)
				continue
			}
			assert.Equal(t, d.String(), e.DType.String(), name)
			want := make([]byte, len(was[name].Data)/from.Size()*d.Size())
			require.NoError(t, tensor.Convert(want, d, was[name].Data, from))
			assert.Equal(t, want, e.Data, "%v %s", d, name)
			assert.Equal(t, was[name].Shape, e.Shape)
		}
	}
	_, err := File(t.Context(), filepath.Join(dir, "x.safetensors"), open(t, in), Options{DType: tensor.I8})
	assert.ErrorIs(t, err, ErrOptions)
}

func TestChanges(t *testing.T) {
	dir := t.TempDir()
	in := write(t, filepath.Join(dir, "in.safetensors"), nil,
		safetensors.Entry{Name: "a", DType: safetensors.F32, Shape: []int{5}, Data: le[float32](1, 1.0004, 70000, -1e30, 1e-30)},
		safetensors.Entry{Name: "b", DType: safetensors.F32, Shape: []int{3}, Data: le[float32](2048, 2049, float32(math.Inf(1)))},
		safetensors.Entry{Name: "c", DType: safetensors.BF16, Shape: []int{1}, Data: le[uint16](0x3f80)})
	r, err := File(t.Context(), filepath.Join(dir, "out.safetensors"), open(t, in), Options{DType: tensor.F16})
	require.NoError(t, err)
	assert.Equal(t, []Change{
		{
			From: safetensors.F32, To: safetensors.F16, Tensors: 2, Elements: 8, MaxAbs: 1, Relative: r.Changes[0].Relative, At: "b",
			Overflow: 2, OverflowAt: "a", Underflow: 1,
		},
		{From: safetensors.BF16, To: safetensors.F16, Tensors: 1, Elements: 1},
	}, r.Changes)
	assert.InDelta(t, 1./2049, r.Changes[0].Relative, 1e-9)
	assert.EqualValues(t, 8*4+2, r.BytesIn)
	assert.EqualValues(t, 9*2, r.BytesOut)
}

// TestQuantizedWeights: scales stay with the codes that they belong to.
func TestQuantizedWeights(t *testing.T) {
	dir := t.TempDir()
	f32 := func(name string) safetensors.Entry {
		return safetensors.Entry{Name: name, DType: safetensors.F32, Shape: []int{1}, Data: le[float32](1.0001)}
	}
	in := write(t, filepath.Join(dir, "in.safetensors"), nil, f32("a.weight.absmax"), f32("a.weight.quant_map"),
		f32("a.weight.nested_absmax"), f32("a.weight.nested_quant_map"), f32("b.SCB"), f32("norm.weight"),
		safetensors.Entry{Name: "a.weight", DType: safetensors.U8, Shape: []int{1, 1}, Data: []byte{7}})
	out := filepath.Join(dir, "out.safetensors")
	_, err := File(t.Context(), out, open(t, in), Options{DType: tensor.BF16})
	require.NoError(t, err)
	was := content(t, in)
	for name, e := range content(t, out) {
		if name == "norm.weight" {
			assert.Equal(t, safetensors.BF16, e.DType)
			continue
		}
		assert.Equal(t, was[name], e, name)
	}
}

// TestShards goes from one file to many and back.
func TestShards(t *testing.T) {
	dir := t.TempDir()
	in := mixed(t, filepath.Join(dir, "in.safetensors"))
	many := filepath.Join(dir, "many")
	r, err := Folder(t.Context(), many, open(t, in), Options{MaxShardSize: 20, Stem: "diffusion_pytorch_model"})
	require.NoError(t, err)
	assert.Greater(t, len(r.Files), 2)
	assert.Equal(t, "diffusion_pytorch_model-00001-of-0000", r.Files[0][:37])
	assert.Equal(t, content(t, in), content(t, many))
	_, err = File(t.Context(), filepath.Join(dir, "again.safetensors"), open(t, many), Options{})
	require.NoError(t, err)
	assert.Equal(t, readFile(t, in), readFile(t, filepath.Join(dir, "again.safetensors")))
	// The names of the files stay, unless they are those of one file or of PyTorch.
	r, err = Folder(t.Context(), filepath.Join(dir, "fewer"), open(t, many), Options{})
	require.NoError(t, err)
	assert.Equal(t, []string{"diffusion_pytorch_model.safetensors"}, r.Files)
	r, err = Folder(t.Context(), filepath.Join(dir, "named"), open(t, in), Options{})
	require.NoError(t, err)
	assert.Equal(t, []string{"model.safetensors"}, r.Files)
	for _, stem := range []string{"a/b", `a\b`, "..", ".x", "a\x00"} {
		_, err = Folder(t.Context(), filepath.Join(dir, "bad"), open(t, in), Options{Stem: stem})
		assert.ErrorIs(t, err, ErrOptions, stem)
	}
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(raw)
}

// TestModelFolder: configuration and tokenizer come along, old weights do not.
func TestModelFolder(t *testing.T) {
	dir := t.TempDir()
	model := filepath.Join(dir, "model")
	require.NoError(t, os.CopyFS(model, os.DirFS("../../testdata/lm/qwen2/model-sharded")))
	require.NoError(t, os.WriteFile(filepath.Join(model, "old.pt"), []byte("x"), 0o666))
	out := filepath.Join(dir, "out")
	r, err := Folder(t.Context(), out, open(t, model), Options{DType: tensor.BF16, MaxShardSize: 100e3})
	require.NoError(t, err)
	assert.Contains(t, r.Copied, "tokenizer.json")
	assert.NotContains(t, r.Copied, "old.pt")
	assert.NoFileExists(t, filepath.Join(out, "old.pt"))
	assert.Equal(t, readFile(t, filepath.Join(model, "tokenizer.json")), readFile(t, filepath.Join(out, "tokenizer.json")))
	var config map[string]any
	require.NoError(t, json.Unmarshal([]byte(readFile(t, filepath.Join(out, "config.json"))), &config))
	assert.Equal(t, "bfloat16", config["dtype"])
	for name, e := range content(t, out) {
		assert.Equal(t, safetensors.BF16, e.DType, name)
	}
	// A type that is not computed in, or not of all weights, is not in config.json.
	for i, o := range []Options{{DType: tensor.F8E4M3}, {DType: tensor.F16, Keep: func(string) bool { return true }}, {}} {
		out := filepath.Join(dir, string(rune('a'+i)))
		_, err := Folder(t.Context(), out, open(t, model), o)
		require.NoError(t, err)
		assert.Equal(t, readFile(t, filepath.Join(model, "config.json")), readFile(t, filepath.Join(out, "config.json")))
	}
	require.NoError(t, os.WriteFile(filepath.Join(model, "config.json"), []byte("{"), 0o666))
	_, err = Folder(t.Context(), filepath.Join(dir, "z"), open(t, model), Options{DType: tensor.BF16})
	assert.ErrorContains(t, err, "config.json")
	assert.NoDirExists(t, filepath.Join(dir, "z"))
}

// shared is a set in which b is a, c lies within a, and e and f are other bytes.
func shared(t testing.TB) *weights.Set {
	path := filepath.Join(t.TempDir(), "storage")
	require.NoError(t, os.WriteFile(path, le[float32](1, 2, 3, 4), 0o666))
	f, err := safetensors.OpenExternal(path, []safetensors.ExternalTensor{
		{Name: "a", DType: safetensors.F32, Shape: []int{2, 2}},
		{Name: "b", DType: safetensors.F32, Shape: []int{2, 2}},
		{Name: "c", DType: safetensors.F32, Shape: []int{4}},
		{Name: "d", DType: safetensors.F32, Shape: []int{2}},
		{Name: "e", DType: safetensors.F32, Shape: []int{2, 2}, Reader: bytes.NewReader(le[float32](1, 2, 3, 4))},
		{Name: "f", DType: safetensors.F32, Shape: []int{2, 2}, Reader: bytes.NewReader(le[float32](1, 2, 3, 4))},
		{Name: "none", DType: safetensors.F32, Shape: []int{0}}, {Name: "nor", DType: safetensors.F32, Shape: []int{0}},
	}, map[string]string{"format": "pt"})
	require.NoError(t, err)
	s := weights.New(f)
	t.Cleanup(func() { s.Close() })
	return s
}

func TestTied(t *testing.T) {
	dir := t.TempDir()
	r, err := File(t.Context(), filepath.Join(dir, "all.safetensors"), shared(t), Options{})
	require.NoError(t, err)
	assert.Equal(t, [][]string{{"a", "b"}}, r.Tied)
	all := content(t, filepath.Join(dir, "all.safetensors"))
	assert.Len(t, all, 8)
	assert.Equal(t, all["a"], all["b"])
	assert.Equal(t, all["a"], all["e"])
	r, err = File(t.Context(), filepath.Join(dir, "one.safetensors"), shared(t), Options{DropTied: true, DType: tensor.BF16})
	require.NoError(t, err)
	assert.Equal(t, 7, r.Tensors)
	f, err := safetensors.Open(filepath.Join(dir, "one.safetensors"))
	require.NoError(t, err)
	defer f.Close()
	assert.False(t, f.Has("b"))
	assert.Equal(t, map[string]string{"format": "pt", "b": "a"}, f.Metadata())
}

// large is a tensor of several chunks, of which the last is not whole.
func large(t testing.TB, path string, d safetensors.DType) string {
	n := (5*chunkSize + 40) / 2
	x := make([]float32, n)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	td, err := tensor.ParseDType(d.String())
	require.NoError(t, err)
	data := make([]byte, n*td.Size())
	require.NoError(t, tensor.FromFloat32(data, x, td))
	return write(t, path, nil, safetensors.Entry{Name: "x", DType: d, Shape: []int{n}, Data: data},
		safetensors.Entry{Name: "y", DType: d, Shape: []int{n}, Data: data}, safetensors.Entry{Name: "small", DType: d, Shape: []int{1}, Data: data[:td.Size()]})
}

// TestThreads: the bytes do not depend on how many goroutines convert.
func TestThreads(t *testing.T) {
	dir := t.TempDir()
	in := large(t, filepath.Join(dir, "in.safetensors"), safetensors.F32)
	first := ""
	for _, threads := range []int{1, 2, 5} {
		out := filepath.Join(dir, "out.safetensors")
		last := map[string]int64{}
		r, err := File(t.Context(), out, open(t, in), Options{DType: tensor.BF16, Threads: threads, Replace: true, Progress: func(task string, done, total int64) {
			assert.Greater(t, done, last[task])
			last[task] = done
			last[task+" of"] = total
		}})
		require.NoError(t, err)
		assert.Equal(t, map[string]int64{"converting": r.BytesIn, "converting of": r.BytesIn, "verifying": r.BytesOut, "verifying of": r.BytesOut}, last)
		raw := readFile(t, out)
		if first == "" {
			first = raw
		}
		assert.True(t, first == raw)
	}
	was, is := content(t, in), content(t, filepath.Join(dir, "out.safetensors"))
	want := make([]byte, len(was["x"].Data)/2)
	require.NoError(t, tensor.Convert(want, tensor.BF16, was["x"].Data, tensor.F32))
	assert.True(t, bytes.Equal(want, is["x"].Data))
	assert.True(t, bytes.Equal(want, is["y"].Data))
}

// TestMemory: what is allocated does not grow with the model.
func TestMemory(t *testing.T) {
	dir := t.TempDir()
	in := large(t, filepath.Join(dir, "in.safetensors"), safetensors.F32) // 20 MB
	var before, after runtime.MemStats
	s := open(t, in)
	runtime.ReadMemStats(&before)
	_, err := File(t.Context(), filepath.Join(dir, "out.safetensors"), s, Options{DType: tensor.F32, Threads: 1})
	require.NoError(t, err)
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20))
}

// TestCancel leaves nothing behind, wherever it comes.
func TestCancel(t *testing.T) {
	dir := t.TempDir()
	in := large(t, filepath.Join(dir, "in.safetensors"), safetensors.BF16)
	for _, task := range []string{"converting", "verifying"} {
		for _, write := range []func(context.Context, string, *weights.Set, Options) (*Result, error){File, Folder} {
			ctx, cancel := context.WithCancel(t.Context())
			_, err := write(ctx, filepath.Join(dir, "out"), open(t, in), Options{DType: tensor.F32, Progress: func(now string, done, total int64) {
				if now == task && done > total/3 {
					cancel()
				}
			}})
			assert.ErrorIs(t, err, context.Canceled)
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			assert.Len(t, entries, 1, "nothing but the input")
			cancel()
		}
	}
}

// TestFault: a source that is cut short while it is read is an error.
func TestFault(t *testing.T) {
	dir := t.TempDir()
	in := large(t, filepath.Join(dir, "in.safetensors"), safetensors.F32)
	s := open(t, in)
	if err := os.Truncate(in, 1<<20); err != nil {
		t.Skip(err) // mapped files cannot be cut short on Windows
	}
	_, err := File(t.Context(), filepath.Join(dir, "out.safetensors"), s, Options{DType: tensor.BF16})
	assert.ErrorIs(t, err, safetensors.ErrFault)
	assert.NoFileExists(t, filepath.Join(dir, "out.safetensors"))
}
