package weights_test

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// words packs rows of numbers into elements of 32 bits.
func words(rows [][]int, bits int) []byte {
	var all []byte
	for _, row := range rows {
		packed := make([]byte, (len(row)*bits+31)/32*4)
		for i, x := range row {
			for b := range bits {
				packed[(i*bits+b)/8] |= byte(x>>b&1) << ((i*bits + b) % 8)
			}
		}
		all = append(all, packed...)
	}
	return all
}

// transposed exchanges the axes of a matrix of 32-bit elements.
func transposed(data []byte, rows int) []byte {
	columns := len(data) / 4 / rows
	all := make([]byte, 0, len(data))
	for c := range columns {
		for r := range rows {
			all = append(all, data[(r*columns+c)*4:][:4]...)
		}
	}
	return all
}

// Weights of any shape, bits and groups are their scales times the differences of codes and zero
// points, in blocks too, and however they are divided for reading.
func TestUnpack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		bits := rapid.SampledFrom([]int{2, 3, 4, 8}).Draw(rt, "bits")
		out := 32 * rapid.IntRange(1, 3).Draw(rt, "out")
		in, size := 32*rapid.IntRange(1, 5).Draw(rt, "in"), rapid.SampledFrom([]int{-1, 16, 32, 64}).Draw(rt, "group_size")
		order, shifted := rapid.Bool().Draw(rt, "order"), rapid.Bool().Draw(rt, "shifted")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		each := size
		if size < 0 {
			each = in
		}
		groups := (in + each - 1) / each
		group, data := make([]int, in), make([]byte, 4*in)
		for i := range group {
			group[i] = i / each
		}
		if order {
			r.Shuffle(in, func(i, j int) { group[i], group[j] = group[j], group[i] })
		}
		for i, g := range group {
			binary.LittleEndian.PutUint32(data[4*i:], uint32(g))
		}
		codes, zeros, scales := make([][]int, out), make([][]int, groups), make([]float32, groups*out)
		for o := range codes {
			codes[o] = make([]int, in)
			for i := range codes[o] {
				codes[o][i] = r.IntN(1 << bits)
			}
		}
		half := make([]byte, 2*len(scales))
		for i := range scales {
			scales[i] = tensor.F16ToFloat32(tensor.Float32ToF16(r.Float32()*2 - 1))
			binary.LittleEndian.PutUint16(half[2*i:], tensor.Float32ToF16(scales[i]))
		}
		stored := make([][]int, groups)
		for g := range zeros {
			zeros[g], stored[g] = make([]int, out), make([]int, out)
			for o := range zeros[g] {
				zeros[g][o] = r.IntN(1 << bits)
				if stored[g][o] = zeros[g][o]; shifted {
					zeros[g][o] = max(1, zeros[g][o])
					stored[g][o] = zeros[g][o] - 1
				}
			}
		}
		entries := []safetensors.Entry{
			{Name: "m.qweight", DType: safetensors.I32, Shape: []int{in * bits / 32, out}, Data: transposed(words(codes, bits), out)},
			{Name: "m.qzeros", DType: safetensors.I32, Shape: []int{groups, out * bits / 32}, Data: words(stored, bits)},
			{Name: "m.scales", DType: safetensors.F16, Shape: []int{groups, out}, Data: half},
			{Name: "m.bias", DType: safetensors.F16, Shape: []int{out}, Data: make([]byte, 2*out)},
			{Name: "other.scales", DType: safetensors.F16, Shape: []int{1}, Data: make([]byte, 2)},
		}
		if order || rapid.Bool().Draw(rt, "g_idx") {
			entries = append(entries, safetensors.Entry{Name: "m.g_idx", DType: safetensors.I32, Shape: []int{in}, Data: data})
		}
		path := filepath.Join(t.TempDir(), "model.safetensors")
		require.NoError(rt, safetensors.WriteFile(path, entries, nil))
		s, err := weights.Open(path)
		require.NoError(rt, err)
		u, err := s.Unpack(weights.Packing{Shifted: shifted, Bits: []int{7, bits}, Groups: []int{size}})
		require.NoError(rt, err)
		defer u.Close()
		require.ElementsMatch(rt, []string{"m.weight", "m.bias", "other.scales"}, u.Names())

		want := make([]float32, out*in)
		for o := range out {
			for i, g := range group {
				want[o*in+i] = float32(codes[o][i]-zeros[g][o]) * scales[g*out+o]
			}
		}
		v, err := u.Lookup("m.weight")
		require.NoError(rt, err)
		all := make([]byte, v.Len())
		for at := 0; at < len(all); {
			n := min(len(all)-at, rapid.IntRange(1, 3*len(all)/2).Draw(rt, "length"))
			_, err := v.ReadAt(all[at:at+n], int64(at))
			require.NoError(rt, err)
			at += n
		}
		got := make([]float32, len(want))
		require.NoError(rt, tensor.ToFloat32(got, all, tensor.F32))
		require.Equal(rt, want, got)
		b, ok, err := u.Blocks("m.weight")
		require.NoError(rt, err)
		if each%32 == 0 && !order {
			require.True(rt, ok)
		}
		if ok {
			require.NoError(rt, quant.Dequantize(got, b.View.Bytes(), 0, b.DType))
			require.Equal(rt, want, got)
		}
	})
}

// FuzzUnpack: no file makes unpacking panic.
func FuzzUnpack(f *testing.F) {
	for _, name := range []string{"gptq-3", "gptq-8", "awq-mixed"} {
		data, err := os.ReadFile(filepath.Join("../../testdata/quant", name, "model.safetensors"))
		require.NoError(f, err)
		f.Add(data, 3, -1, false, true)
		f.Add(data, 4, -1, true, false)
		f.Add(data, 8, 32, false, false)
	}
	f.Fuzz(func(t *testing.T, data []byte, bits, group int, awq, shifted bool) {
		path := filepath.Join(t.TempDir(), "model.safetensors")
		require.NoError(t, os.WriteFile(path, data, 0o666))
		s, err := weights.Open(path)
		if err != nil {
			return
		}
		u, err := s.Unpack(weights.Packing{AWQ: awq, Shifted: shifted, Bits: []int{2 + (bits&7)%3, 8, 4}, Groups: []int{group}})
		if err != nil {
			require.NoError(t, s.Close())
			return
		}
		defer u.Close()
		for _, name := range u.PackedWeights() {
			v, err := u.Lookup(name)
			require.NoError(t, err)
			_ = v.WithBytes(func([]byte) error { return nil })
			if b, ok, err := u.Blocks(name); ok && err == nil {
				_ = b.View.WithBytes(func([]byte) error { return nil })
			}
		}
	})
}
