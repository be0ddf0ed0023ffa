//go:build cgo && (darwin || (metal && metalfake))

package metal_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/metal"
	"github.com/lorafuse/lorafuse/dev/gputest"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// piece is a tensor of a file: so many bytes.
type piece struct {
	name  string
	bytes int
	dtype string
}

// mapped writes a file of tensors, one behind the other, and maps it. The first begins so
// many bytes behind a multiple of 16.
func mapped(t testing.TB, off int, pieces []piece) (*safetensors.File, []byte) {
	t.Helper()
	var header strings.Builder
	header.WriteString("{")
	at := 0
	for i, p := range pieces {
		if i > 0 {
			header.WriteString(",")
		}
		size := map[string]int{"U8": 1, "BF16": 2, "F32": 4, "F64": 8}[p.dtype]
		fmt.Fprintf(&header, `"%s":{"dtype":"%s","shape":[%d],"data_offsets":[%d,%d]}`, p.name, p.dtype, p.bytes/size, at, at+p.bytes)
		at += p.bytes
	}
	header.WriteString("}")
	header.WriteString(strings.Repeat(" ", (2*16-8-header.Len()%16)%16+off))
	n := header.Len()
	data := gputest.Noise(at, 7)
	raw := append([]byte{byte(n), byte(n >> 8), byte(n >> 16), 0, 0, 0, 0, 0}, header.String()...)
	path := filepath.Join(t.TempDir(), "model.safetensors")
	require.NoError(t, os.WriteFile(path, append(raw, data...), 0o600))
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f, data
}

// imported imports all tensors of a file, in their order.
func imported(t testing.TB, dev backend.Device, f *safetensors.File, pieces []piece) (all []backend.Buffer) {
	t.Helper()
	for _, p := range pieces {
		v, err := f.Lookup(p.name)
		require.NoError(t, err)
		b, err := dev.Import(weights.Data{Bytes: v.Bytes(), Keep: v})
		require.NoError(t, err)
		require.Equal(t, p.bytes, b.Size())
		all = append(all, b)
	}
	return all
}

// doubled is what a program reads of a buffer: 2x of each f32.
func doubled(t testing.TB, dev backend.Device, b backend.Buffer, n int) []float32 {
	t.Helper()
	g := graph.New()
	e, err := g.Program().Result("y", g.Param("x", tensor.F32, ir.Static(n)).Scale(2)).Compile(dev)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	return runOn(t, dev, e, b, n)
}

func runOn(t testing.TB, dev backend.Device, e *exec.Executable, b backend.Buffer, n int) []float32 {
	t.Helper()
	y, err := dev.Alloc(4 * n)
	require.NoError(t, err)
	defer y.Free()
	require.NoError(t, e.Bind("x", b))
	require.NoError(t, e.Bind("y", y))
	require.NoError(t, e.RunWait(context.Background()))
	got := make([]float32, n)
	f, err := dev.Download(tensor.BytesOf(got), y, 0)
	require.NoError(t, err)
	require.NoError(t, f.Wait(context.Background()))
	return got
}

// twiceOf is what doubled gives for these bytes.
func twiceOf(data []byte) []float32 {
	x := make([]float32, len(data)/4)
	copy(tensor.BytesOf(x), data)
	for i := range x {
		x[i] *= 2
	}
	return x
}

// requireSame compares bits: the numbers are noise, NaNs among them.
func requireSame(t testing.TB, want, got []float32) {
	t.Helper()
	for i := range want {
		if want[i] == want[i] || got[i] == got[i] {
			require.Equal(t, want[i], got[i], "number %d", i)
		}
	}
}

// TestInPlace: tensors of a mapped file are read where they lie, at whatever place of the
// file they begin, and copied where kernels could not read them there.
func TestInPlace(t *testing.T) {
	pieces := []piece{{"a", 4 * 100, "F32"}, {"b", 2 * 3, "BF16"}, {"c", 4 * 50, "F32"}, {"d", 2 * 5, "BF16"}, {"e", 4 * 3001, "F32"}, {"f", 4, "F32"}, {"g", 8 * 9, "F64"}, {"h", 8 * 9, "F64"}}
	for off := range 8 {
		dev := opened(t, backend.Options{})
		f, data := mapped(t, off, pieces)
		all := imported(t, dev, f, pieces)
		places, at := 0, 0
		for i, p := range pieces {
			v, err := f.Lookup(p.name)
			require.NoError(t, err)
			_, offset, _ := v.Extent()
			align := int64(4)
			if p.dtype == "F64" {
				align = 8
			}
			require.Equal(t, offset%align == 0, metal.InPlace(all[i]), "%s at %d", p.name, offset)
			if metal.InPlace(all[i]) {
				places++
				require.Equal(t, uint64(offset)%16, metal.Address(all[i])%16)
			}
			got := make([]byte, p.bytes)
			gputest.Wait(t)(dev.Download(got, all[i], 0))
			require.True(t, bytes.Equal(data[at:at+p.bytes], got), p.name)
			if p.dtype == "F32" {
				requireSame(t, twiceOf(data[at:at+p.bytes]), doubled(t, dev, all[i], p.bytes/4))
			}
			at += p.bytes
		}
		require.Equal(t, min(places, 1), dev.Windows(), "one buffer for all of a file")
		if places < len(pieces) {
			require.Regexp(t, `; .* of weights copied: they lie at no multiple of [48] bytes$`, dev.Info().Detail)
		}
		for _, b := range all {
			_, err := dev.Upload(b, 0, []byte{1})
			require.Error(t, err, "they are read only")
			b.Free()
		}
		require.Zero(t, dev.Windows())
	}
}

// TestHeapIsCopied: what is not mapped is never wrapped.
func TestHeapIsCopied(t *testing.T) {
	dev := opened(t, backend.Options{})
	f, _ := mapped(t, 0, []piece{{"a", 4096, "F32"}})
	v, err := f.Lookup("a")
	require.NoError(t, err)
	src := bytes.Clone(v.Bytes())
	b, err := dev.Import(weights.Data{Bytes: src, Keep: v}) // not the view's bytes
	require.NoError(t, err)
	defer b.Free()
	require.False(t, metal.InPlace(b))
	raw, err := os.ReadFile(f.Path())
	require.NoError(t, err)
	g, err := safetensors.FromBytes(raw)
	require.NoError(t, err)
	v, err = g.Lookup("a")
	require.NoError(t, err)
	c, err := dev.Import(weights.Data{Bytes: v.Bytes(), Keep: v})
	require.NoError(t, err)
	defer c.Free()
	require.False(t, metal.InPlace(c))
	require.NotContains(t, dev.Info().Detail, "copied", "that is as it must be")
}

// TestMappedAsLong: a file stays mapped as long as somebody may read a tensor of it:
// until the last is freed and the runs on it have ended.
func TestMappedAsLong(t *testing.T) {
	dev := opened(t, backend.Options{})
	const n = 1 << 20
	pieces := []piece{{"a", 4 * n, "F32"}, {"b", 4 * n, "F32"}}
	f, data := mapped(t, 4, pieces)
	all := imported(t, dev, f, pieces)
	require.NoError(t, f.Close())
	g := graph.New()
	e, err := g.Program().Result("y", g.Param("x", tensor.F32, ir.Static(n)).Slice(0, n-8, n).Scale(2)).Compile(dev)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	y, err := dev.Alloc(32)
	require.NoError(t, err)
	defer y.Free()
	require.NoError(t, e.Bind("y", y))
	require.NoError(t, e.Bind("x", all[1]))
	all[0].Free()
	require.Equal(t, 1, dev.Windows(), "the other tensor is there")
	f = nil
	dev.Unseen(func() {
		_, err := e.Run(context.Background())
		require.NoError(t, err)
		all[1].Free()
		require.Zero(t, dev.Windows())
		require.Equal(t, 1, dev.Limbo(), "a run reads it")
		for range 3 {
			runtime.GC()
		}
	})
	require.Zero(t, dev.Limbo())
	got := make([]float32, 8)
	gputest.Wait(t)(dev.Download(tensor.BytesOf(got), y, 0))
	requireSame(t, twiceOf(data[8*n-32:]), got)
}
