package lora_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
)

func TestLayerForward(t *testing.T) {
	l := &lora.Layer{In: 3, Out: 4, Rank: 2, Alpha: 4, A: []float32{1, 2, 3, 0, 1, -1}, B: []float32{10, 1, -1, 1, 0, 5, 2, 0}}
	dst := []float32{9, 9, 9, 9, 9, 9, 9, 9}
	x := []float32{1, 1, 1, 0, 1, -1}
	require.NoError(t, l.Forward(dst, x, 2))
	// x·Aᵀ is (6, 0) and (-1, 2), the scale 2.
	assert.Equal(t, []float32{120, -12, 0, 24, -16, 6, 20, -4}, dst)
	l.Alpha, l.RSLoRA = float32(2*math.Sqrt2), true
	require.NoError(t, l.Forward(dst, x, 2))
	assert.InDeltaSlice(t, []float32{120, -12, 0, 24, -16, 6, 20, -4}, dst, 1e-4)
	require.ErrorIs(t, l.Forward(dst, make([]float32, 5), 2), lora.ErrShape)
	require.ErrorIs(t, l.Forward(dst[:7], make([]float32, 6), 2), lora.ErrShape)
	require.ErrorIs(t, l.Forward(dst, make([]float32, 6), -2), lora.ErrShape)
	require.ErrorIs(t, (&lora.Layer{}).Forward(nil, nil, 0), lora.ErrShape)
	l.Dropout = 1
	require.ErrorIs(t, l.Forward(dst, x, 2), lora.ErrConfig)
}

// A weight that the layer is merged into computes what both did.
func TestLayerMerge(t *testing.T) {
	l := &lora.Layer{In: 3, Out: 2, Rank: 1, Alpha: 4, A: []float32{1, 2, 3}, B: []float32{10, -1}}
	w := []float32{1, 2, 3, 4, 5, 6}
	require.NoError(t, l.Merge(w))
	assert.Equal(t, []float32{41, 82, 123, 0, -3, -6}, w)
	require.ErrorIs(t, l.Merge(w[:5]), lora.ErrShape)
	require.ErrorIs(t, (&lora.Layer{}).Merge(nil), lora.ErrShape)
}

func TestNewLayer(t *testing.T) {
	l, err := lora.NewLayer(768, 700, 8, 16, 1)
	require.NoError(t, err)
	assert.Equal(t, 8*(768+700), l.NumParams())
	assert.Equal(t, float32(2), l.Scale())
	_, _, largest := moments(l.A)
	assert.InDelta(t, 1/math.Sqrt(768), largest, 1e-4)
	x, y := make([]float32, 768), make([]float32, 700)
	x[3] = 1
	require.NoError(t, l.Forward(y, x, 1))
	assert.Equal(t, make([]float32, 700), y, "B is zero: nothing is added")
	for _, bad := range [][3]int{{0, 1, 1}, {1, -1, 1}, {1, 1, 0}, {math.MaxInt / 4, 1, 1}} {
		_, err := lora.NewLayer(bad[0], bad[1], bad[2], 1, 1)
		require.ErrorIs(t, err, lora.ErrShape)
	}
}

func TestLayerRoundTrip(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		in, out, rank := rapid.IntRange(1, 20).Draw(t, "in"), rapid.IntRange(1, 20).Draw(t, "out"), rapid.IntRange(1, 5).Draw(t, "rank")
		if rank > in && rank > out {
			return
		}
		l, err := lora.NewLayer(in, out, rank, 3, rapid.Uint64().Draw(t, "seed"))
		require.NoError(t, err)
		for i := range l.B {
			l.B[i] = float32(i) - 2.5
		}
		path := filepath.Join(dir, "layer.safetensors")
		require.NoError(t, l.Save(path))
		first, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, want := range [][3]int{{in, out, rank}, {0, 0, 0}} {
			got, err := lora.LoadLayer(path, want[0], want[1], want[2], 3)
			require.NoError(t, err)
			require.Equal(t, [3]int{in, out, rank}, [3]int{got.In, got.Out, got.Rank})
			require.Equal(t, l.A, got.A)
			require.Equal(t, l.B, got.B)
			require.NoError(t, got.Save(path), "over the file that it is read from")
		}
		again, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, first, again)
	})
}

// The file is two F32 tensors without metadata, as they lie in memory; or
// transposed, which is what the first trainer of this form wrote.
func TestLayerFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l.safetensors")
	l := &lora.Layer{In: 3, Out: 2, Rank: 2, Alpha: 1, A: []float32{1, 2, 3, 4, 5, 6}, B: []float32{7, 8, 9, 10}}
	for _, c := range []struct {
		save   func(string) error
		header string
		second byte // of the third element, 2 or 4
	}{
		{l.Save, `{"lora_A.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"lora_B.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[24,40]}}`, 0x00},
		{l.SaveTransposed, `{"lora_a":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]},"lora_b":{"dtype":"F32","shape":[2,2],"data_offsets":[24,40]}}`, 0x80},
	} {
		require.NoError(t, c.save(path))
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		header := c.header
		for len(header)%8 != 0 {
			header += " "
		}
		assert.Equal(t, header, string(data[8:8+len(header)]))
		assert.Equal(t, []byte{0, 0, 0x80, 0x3f, 0, 0, c.second, 0x40}, data[8+len(header):16+len(header)])
		assert.Len(t, data, 8+len(header)+40)
		got, err := lora.LoadLayer(path, 0, 0, 0, 1)
		require.NoError(t, err)
		assert.Equal(t, l.A, got.A)
		assert.Equal(t, l.B, got.B)
	}
	l.B = l.B[:1]
	require.ErrorIs(t, l.Save(path), lora.ErrShape)
	require.ErrorIs(t, l.SaveTransposed(path), lora.ErrShape)
	l.B = []float32{7, 8, 9, 10}
	assert.Error(t, l.Save(filepath.Join(path, "not a folder")))
}

func TestLoadLayerErrors(t *testing.T) {
	f32 := func(name string, shape ...int) safetensors.Entry {
		n := 4
		for _, d := range shape {
			n *= d
		}
		return safetensors.Entry{Name: name, DType: safetensors.F32, Shape: shape, Data: make([]byte, n)}
	}
	const a, b = "lora_A.weight", "lora_B.weight"
	half := f32(b, 5, 2)
	half.DType, half.Data = safetensors.F16, half.Data[:20]
	for name, c := range map[string]struct {
		entries []safetensors.Entry
		kind    error
		want    string
	}{
		"no a":               {[]safetensors.Entry{f32(b, 5, 2)}, lora.ErrMissing, `tensor "lora_A.weight"`},
		"no b":               {[]safetensors.Entry{f32(a, 2, 7)}, lora.ErrMissing, `tensor "lora_B.weight"`},
		"more":               {[]safetensors.Entry{f32(a, 2, 7), f32(b, 5, 2), f32("x", 1)}, lora.ErrUnmatched, `tensor "x"`},
		"mixed forms":        {[]safetensors.Entry{f32(a, 2, 7), f32("lora_b", 2, 5)}, lora.ErrUnmatched, `tensor "lora_b"`},
		"half":               {[]safetensors.Entry{f32(a, 2, 7), half}, lora.ErrDType, `tensor "lora_B.weight": wrong element type: found F16, expected F32`},
		"dimensions":         {[]safetensors.Entry{f32(a, 14), f32(b, 5, 2)}, lora.ErrShape, "expected two dimensions"},
		"ranks":              {[]safetensors.Entry{f32(a, 3, 7), f32(b, 5, 2)}, lora.ErrShape, "the ranks differ"},
		"a transposed":       {[]safetensors.Entry{f32(a, 7, 2), f32(b, 5, 2)}, lora.ErrOrientation, "expected [rank, in] and [out, rank]"},
		"b transposed":       {[]safetensors.Entry{f32(a, 2, 7), f32(b, 2, 5)}, lora.ErrOrientation, ""},
		"both transposed":    {[]safetensors.Entry{f32(a, 7, 2), f32(b, 2, 5)}, lora.ErrOrientation, ""},
		"square, transposed": {[]safetensors.Entry{f32(a, 7, 2), f32(b, 2, 7)}, lora.ErrOrientation, "the rank would exceed both sides"},
		"other in":           {[]safetensors.Entry{f32(a, 2, 8), f32(b, 5, 2)}, lora.ErrShape, "expected in 7, rank 2, out 5"},
		"empty":              {[]safetensors.Entry{f32(a, 2, 0), f32(b, 5, 2)}, lora.ErrShape, ""},
		"old, half missing":  {[]safetensors.Entry{f32("lora_a", 7, 2)}, lora.ErrMissing, `tensor "lora_b"`},
		"old, PEFT's":        {[]safetensors.Entry{f32("lora_a", 2, 7), f32("lora_b", 5, 2)}, lora.ErrOrientation, "expected [in, rank] and [rank, out]"},
		"old, ranks":         {[]safetensors.Entry{f32("lora_a", 7, 3), f32("lora_b", 2, 5)}, lora.ErrShape, "lora_a [7 3], lora_b [2 5]: wrong shape: the ranks differ"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "l.safetensors")
			require.NoError(t, safetensors.WriteFile(path, c.entries, nil))
			_, err := lora.LoadLayer(path, 7, 5, 2, 1)
			require.ErrorIs(t, err, c.kind)
			assert.ErrorContains(t, err, c.want)
			assert.ErrorContains(t, err, path)
			if name != "other in" {
				_, err = lora.LoadLayer(path, 0, 0, 0, 1)
				require.ErrorIs(t, err, c.kind)
			}
		})
	}
	_, err := lora.LoadLayer(filepath.Join(t.TempDir(), "none"), 0, 0, 0, 1)
	assert.True(t, errors.Is(err, os.ErrNotExist))
}

// Saving converts and copies no element: what it allocates does not grow with
// the tensors.
func BenchmarkLayerSave(b *testing.B) {
	for _, size := range []int{64, 768, 4096} {
		b.Run(fmt.Sprintf("%dx%d", size, size), func(b *testing.B) {
			l, err := lora.NewLayer(size, size, 8, 16, 1)
			require.NoError(b, err)
			path := filepath.Join(b.TempDir(), "l.safetensors")
			b.SetBytes(int64(4 * l.NumParams()))
			b.ReportAllocs()
			for b.Loop() {
				if err := l.Save(path); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Loading maps the file: no element is copied either.
func BenchmarkLoadLayer(b *testing.B) {
	for _, size := range []int{64, 768, 4096} {
		b.Run(fmt.Sprintf("%dx%d", size, size), func(b *testing.B) {
			l, err := lora.NewLayer(size, size, 8, 16, 1)
			require.NoError(b, err)
			path := filepath.Join(b.TempDir(), "l.safetensors")
			require.NoError(b, l.Save(path))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := lora.LoadLayer(path, size, size, 8, 16); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestLayerAllocations(t *testing.T) {
	bytesPer := func(size int) float64 {
		l, err := lora.NewLayer(size, size, 8, 16, 1)
		require.NoError(t, err)
		path := filepath.Join(t.TempDir(), "l.safetensors")
		const runs = 10
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			require.NoError(t, l.Save(path))
			_, err := lora.LoadLayer(path, 0, 0, 0, 16)
			require.NoError(t, err)
		}
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc-before.TotalAlloc) / runs
	}
	bytesPer(16) // what is set up once
	assert.InDelta(t, bytesPer(16), bytesPer(2048), 4096, "1 KiB and 128 KiB of elements")
}
