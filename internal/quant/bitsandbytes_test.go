package quant_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// goldens are what bitsandbytes 0.50.2 makes of weights, by
// scripts/make_quant_goldens.py.
type goldens struct {
	t *testing.T
	f *safetensors.File
}

func openGoldens(t *testing.T) goldens {
	f, err := safetensors.Open("testdata/bitsandbytes.safetensors")
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return goldens{t, f}
}

func (g goldens) floats(name string) []float32 {
	v, err := g.f.Lookup(name)
	require.NoError(g.t, err)
	x := make([]float32, v.Len()/4)
	require.NoError(g.t, tensor.ToFloat32(x, v.Bytes(), tensor.F32))
	return x
}

func (g goldens) bytes(name string) []byte {
	v, err := g.f.Lookup(name)
	require.NoError(g.t, err)
	return v.Bytes()
}

// cases lists what stands between a prefix and a suffix in the names.
func (g goldens) cases(prefix, suffix string) (names []string) {
	for _, name := range g.f.Names() {
		if rest, ok := strings.CutPrefix(name, prefix); ok && strings.HasSuffix(rest, suffix) {
			names = append(names, strings.TrimSuffix(rest, suffix))
		}
	}
	require.NotEmpty(g.t, names)
	return names
}

var fourBits = map[string]tensor.DType{"nf4": tensor.NF4, "fp4": tensor.FP4}

func (g goldens) fourBit(kind, name string) *quant.FourBit {
	code := quant.Code(fourBits[kind])
	return &quant.FourBit{
		State: &quant.State{DType: fourBits[kind], Shape: []int{1, len(g.floats(kind + "." + name + ".x"))}, BlockSize: 64},
		Codes: g.bytes(kind + "." + name + ".codes"), Scales: g.floats(kind + "." + name + ".absmax"), Map: code[:],
	}
}

// NF4 blocks are those of bitsandbytes, bit for bit, and so are the numbers
// that 4-bit codes stand for.
func TestFourBitIsThatOfBitsandbytes(t *testing.T) {
	g := openGoldens(t)
	for kind, d := range fourBits {
		for _, name := range g.cases(kind+".", ".x") {
			t.Run(kind+"/"+name, func(t *testing.T) {
				w := g.fourBit(kind, name)
				n := w.Elements()
				theirs := make([]byte, d.Bytes(n))
				require.NoError(t, w.CheckSizes(len(w.Codes)))
				require.NoError(t, w.Blocks(theirs, 0))
				half := n / 128 * d.BlockBytes() // in two pieces, too
				again := make([]byte, len(theirs))
				require.NoError(t, w.Blocks(again[:half], 0))
				require.NoError(t, w.Blocks(again[half:], n/128))
				require.Equal(t, theirs, again)
				got := make([]float32, n)
				require.NoError(t, quant.Dequantize(got, theirs, 0, d))
				requireSame(t, g.floats(kind+"."+name+".values"), got)

				ours := make([]byte, d.Bytes(n))
				require.NoError(t, quant.Quantize(ours, g.floats(kind+"."+name+".x"), d))
				require.NoError(t, quant.Dequantize(got, ours, 0, d))
				requireSame(t, g.floats(kind+"."+name+".values"), got)
			})
		}
	}
}

// requireSame compares floats bit by bit, zeros of either sign being the same.
func requireSame(t *testing.T, want, got []float32) {
	require.Len(t, got, len(want))
	for i := range want {
		if want[i] != got[i] {
			require.Failf(t, "different", "element %d is %v (%#x), expected %v (%#x)", i, got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

// Scales that are quantised themselves are the floats that bitsandbytes
// multiplies with.
func TestNestedScales(t *testing.T) {
	g := openGoldens(t)
	metadata := g.f.Metadata()
	for _, name := range g.cases("nested.", ".map") {
		want := g.floats("nested." + name + ".values")
		offset, err := strconv.ParseFloat(metadata["nested."+name+".offset"], 64)
		require.NoError(t, err)
		code := quant.Code(tensor.NF4)
		w := &quant.FourBit{
			State: &quant.State{DType: tensor.NF4, Shape: []int{len(want), 64}, BlockSize: 64, Nested: true, NestedBlockSize: 256, NestedOffset: float32(offset)},
			Codes: make([]byte, 32*len(want)), Map: code[:],
			NestedCodes: g.bytes("nested." + name + ".codes"), NestedScales: g.floats("nested." + name + ".nested_absmax"), NestedMap: g.floats("nested." + name + ".map"),
		}
		for i := range w.Codes {
			w.Codes[i] = 0xff // the largest number of a block
		}
		dst := make([]byte, tensor.NF4.Bytes(w.Elements()))
		require.NoError(t, w.CheckSizes(len(w.Codes)))
		require.NoError(t, w.Blocks(dst, 0))
		got := make([]float32, w.Elements())
		require.NoError(t, quant.Dequantize(got, dst, 0, tensor.NF4))
		for i, x := range want {
			require.Equal(t, x, got[64*i], "%s: scale %d", name, i)
			require.Equal(t, x, got[64*i+63], "%s: scale %d", name, i)
		}
	}
}

// One scale for 128 elements is that of two blocks.
func TestLongerBlocks(t *testing.T) {
	code := quant.Code(tensor.FP4)
	w := &quant.FourBit{State: &quant.State{DType: tensor.FP4, Shape: []int{2, 100}, BlockSize: 128}, Codes: make([]byte, 100), Scales: []float32{2, 5}, Map: code[:]}
	for i := range w.Codes {
		w.Codes[i] = 0x3b // 1 and -1
	}
	dst, got := make([]byte, tensor.FP4.Bytes(200)), make([]float32, 200)
	require.NoError(t, w.CheckSizes(len(w.Codes)))
	require.NoError(t, w.Blocks(dst, 0))
	require.NoError(t, quant.Dequantize(got, dst, 0, tensor.FP4))
	for i, x := range got {
		want := float32([]int{2, 5}[i/128]) * float32(1-2*(i%2))
		require.Equal(t, want, x, i)
	}
}

func TestRows8(t *testing.T) {
	g := openGoldens(t)
	for _, name := range g.cases("int8.", ".codes") {
		codes, scb, want := g.bytes("int8."+name+".codes"), g.floats("int8."+name+".scb"), g.floats("int8."+name+".values")
		w := &quant.EightBit{In: len(codes) / len(scb), Codes: codes, SCB: scb}
		got := make([]float32, len(want))
		require.NoError(t, w.Float32s(got[:9], 0))
		require.NoError(t, w.Float32s(got[9:], 9))
		for i := range want { // bitsandbytes rounds twice
			require.InDelta(t, want[i], got[i], 2e-7*math.Abs(float64(want[i])), "%s %d", name, i)
		}
		dst := make([]byte, tensor.Q8.Bytes(len(codes)))
		if !w.InBlocks() {
			require.ErrorIs(t, w.Blocks(dst, 0), quant.ErrFormat)
			continue
		}
		require.NoError(t, w.Blocks(dst[:68], 0))
		require.NoError(t, w.Blocks(dst[68:], 1))
		again := make([]float32, len(want))
		require.NoError(t, quant.Dequantize(again, dst, 0, tensor.Q8))
		require.Equal(t, got, again)
	}
	w := &quant.EightBit{In: 64, Codes: make([]byte, 64), SCB: make([]float32, 1)}
	require.ErrorIs(t, w.Blocks(make([]byte, 67), 0), quant.ErrLength)
	require.ErrorIs(t, w.Blocks(make([]byte, 68), 1), quant.ErrLength)
	require.ErrorIs(t, w.Blocks(make([]byte, 68), -1), quant.ErrLength)
	require.ErrorIs(t, w.Float32s(make([]float32, 2), 63), quant.ErrLength)
}

const state = `{"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [48, 32]}`
const nested = `{"quant_type": "fp4", "blocksize": 128, "dtype": "float32", "shape": [48, 32], "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.25}`

func TestParseState(t *testing.T) {
	s, err := quant.ParseState([]byte(state))
	require.NoError(t, err)
	require.Equal(t, &quant.State{DType: tensor.NF4, Shape: []int{48, 32}, BlockSize: 64}, s)
	s, err = quant.ParseState([]byte(nested))
	require.NoError(t, err)
	require.Equal(t, &quant.State{DType: tensor.FP4, Shape: []int{48, 32}, BlockSize: 128, Nested: true, NestedBlockSize: 256, NestedOffset: 0.25}, s)
	for from, c := range map[string]struct{ to, message string }{
		`"fp4"`:                        {`"int4"`, `quant_type: found "int4", expected nf4 or fp4`},
		`128`:                          {`32`, "blocksize: found 32, expected a multiple of 64"},
		`[48, 32]`:                     {`[48]`, "shape: found [48], expected [out, in]"},
		`48`:                           {`0`, "shape: found [0 32]"},
		`256`:                          {`0`, "nested_blocksize: found 0, expected 1 or more"},
		`"nested_blocksize": 256,`:     {``, "nested_blocksize: found nothing"},
		`"nested_dtype": "float32",`:   {``, "nested_dtype: found nothing, expected float32"},
		`0.25`:                         {`1e39`, "nested_offset: found 1e+39"},
		`, "nested_offset": 0.25`:      {``, "nested_offset: found nothing"},
		`"nested_dtype": "float32", "`: {`"nested_dtype": "float16", "`, "nested_dtype: found float16"},
		`{`:                            {``, "quant_state"},
	} {
		_, err := quant.ParseState([]byte(strings.Replace(nested, from, c.to, 1)))
		require.ErrorIs(t, err, quant.ErrFormat, from)
		require.ErrorContains(t, err, c.message)
	}
}

func TestCheckNamesTheTensor(t *testing.T) {
	make4 := func() *quant.FourBit {
		code := quant.Code(tensor.NF4)
		s, err := quant.ParseState([]byte(state))
		require.NoError(t, err)
		return &quant.FourBit{State: s, Codes: make([]byte, 768), Scales: make([]float32, 24), Map: code[:]}
	}
	require.NoError(t, make4().CheckSizes(768))
	for name, spoil := range map[string]func(*quant.FourBit){
		"weight: 767 elements, expected 768": func(w *quant.FourBit) { w.Codes = w.Codes[1:] },
		"absmax: 23 elements, expected 24":   func(w *quant.FourBit) { w.Scales = w.Scales[1:] },
		"quant_map: 15 elements":             func(w *quant.FourBit) { w.Map = w.Map[1:] },
		"quant_map: element 3 is 1":          func(w *quant.FourBit) { w.Map[3] = 1 },
		"absmax: 0 elements":                 func(w *quant.FourBit) { w.Nested, w.NestedBlockSize = true, 256 },
		"nested_absmax: 0 elements, expected 1": func(w *quant.FourBit) {
			w.Nested, w.NestedBlockSize, w.NestedCodes = true, 256, make([]byte, 24)
		},
		"nested_quant_map: 0 elements, expected 256": func(w *quant.FourBit) {
			w.Nested, w.NestedBlockSize, w.NestedCodes, w.NestedScales = true, 256, make([]byte, 24), make([]float32, 1)
		},
	} {
		w := make4()
		spoil(w)
		err := w.CheckSizes(len(w.Codes))
		require.ErrorIs(t, err, quant.ErrFormat, name)
		require.ErrorContains(t, err, name)
	}
	require.ErrorIs(t, make4().Blocks(make([]byte, 5), 0), quant.ErrLength)
	require.ErrorIs(t, make4().Blocks(make([]byte, 36), 24), quant.ErrLength)
}

func FuzzParseState(f *testing.F) {
	f.Add([]byte(state))
	f.Add([]byte(nested))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := quant.ParseState(text)
		if err != nil {
			require.ErrorIs(t, err, quant.ErrFormat)
			return
		}
		require.True(t, s.DType.Quantized())
		require.Positive(t, s.Elements())
		require.True(t, json.Valid(text))
		require.NotEmpty(t, fmt.Sprint(s))
	})
}
