package inspect

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// file is a file of these tensors, in memory.
func file(t testing.TB, entries ...safetensors.Entry) *safetensors.File {
	var b bytes.Buffer
	require.NoError(t, safetensors.Write(&b, entries, nil))
	f, err := safetensors.FromBytes(b.Bytes())
	require.NoError(t, err)
	return f
}

func view(t testing.TB, f *safetensors.File, name string) *safetensors.View {
	v, err := f.Lookup(name)
	require.NoError(t, err)
	return v
}

// only scans a file of one tensor.
func only(t testing.TB, d safetensors.DType, n int, data []byte) Values {
	f := file(t, safetensors.Entry{Name: "x", DType: d, Shape: []int{n}, Data: data})
	values, err := Scan(t.Context(), []*safetensors.View{view(t, f, "x")}, Options{Checksums: true})
	require.NoError(t, err)
	require.NoError(t, values[0].Err)
	return values[0]
}

func le[T any](values ...T) []byte {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, values); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func TestScanValues(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	v := only(t, safetensors.F32, 9, le(1, -3, nan, 0, inf, -inf, 2.5, float32(math.Copysign(0, -1)), nan))
	assert.Equal(t, []int64{9, 2, 2, 2}, []int64{v.Elements, v.NaN, v.Inf, v.Zero})
	assert.EqualValues(t, "-3", v.Min)
	assert.EqualValues(t, "2.5", v.Max)
	assert.InDelta(t, 0.1, v.Mean, 1e-15)
	assert.InDelta(t, math.Sqrt((0.9*0.9+3.1*3.1+2*0.01+2.4*2.4)/5), v.Std, 1e-15)
	total := int64(0)
	for _, n := range v.Histogram.Counts {
		total += n
	}
	assert.EqualValues(t, 5, total)
	assert.EqualValues(t, "-3", v.Histogram.Edges[0])
	assert.EqualValues(t, "-2.5", v.Histogram.Edges[1])
	assert.EqualValues(t, "3", v.Histogram.Edges[len(v.Histogram.Edges)-1])
	assert.False(t, v.Constant())

	v = only(t, safetensors.F32, 3, le(nan, inf, nan))
	assert.Empty(t, v.Min)
	assert.Nil(t, v.Histogram)
	assert.True(t, math.IsNaN(v.Mean) && math.IsNaN(v.Std))

	v = only(t, safetensors.BF16, 3, []byte{0x80, 0x3f, 0x80, 0x3f, 0x80, 0x3f})
	assert.True(t, v.Constant())
	assert.EqualValues(t, &Histogram{Edges: []json.Number{"1", "1"}, Counts: []int64{3}}, v.Histogram)
	assert.Zero(t, v.Std)

	v = only(t, safetensors.I64, 4, le[int64](math.MinInt64, 0, 7, math.MaxInt64))
	assert.EqualValues(t, "-9223372036854775808", v.Min)
	assert.EqualValues(t, "9223372036854775807", v.Max)
	assert.EqualValues(t, "-9223372036854775808", v.Histogram.Edges[0])
	assert.EqualValues(t, "9223372036854775808", v.Histogram.Edges[len(v.Histogram.Edges)-1])
	assert.EqualValues(t, 1, v.Zero)

	v = only(t, safetensors.I64, 3, le[int64](1<<60, 1<<60+1, 1<<60+3))
	assert.EqualValues(t, "1152921504606846976", v.Min)
	assert.EqualValues(t, []int64{1, 1, 0, 1}, v.Histogram.Counts)
	assert.EqualValues(t, "1152921504606846977", v.Histogram.Edges[1])

	v = only(t, safetensors.U64, 2, le[uint64](3, math.MaxUint64))
	assert.EqualValues(t, "18446744073709551615", v.Max)
	assert.EqualValues(t, "18446744073709551616", v.Histogram.Edges[len(v.Histogram.Edges)-1])

	v = only(t, safetensors.I32, 3, le[int32](-1, 2, 2))
	assert.EqualValues(t, []int64{1, 0, 0, 2}, v.Histogram.Counts, "integers have no halves")

	v = only(t, safetensors.Bool, 5, []byte{0, 1, 1, 0, 1})
	assert.EqualValues(t, []int64{5, 2}, []int64{v.Elements, v.Zero})
	assert.InDelta(t, 0.6, v.Mean, 1e-15)

	v = only(t, safetensors.C64, 5, le(1, 2, nan, inf, inf, 0, 0, 0, 0, float32(1)))
	assert.Equal(t, []int64{5, 1, 1, 1}, []int64{v.Elements, v.NaN, v.Inf, v.Zero})
	assert.Empty(t, v.Min)
	v = only(t, safetensors.F32, 0, nil)
	assert.True(t, v.Elements == 0 && v.Min == "" && math.IsNaN(v.Mean))
}

// TestScanExtremes: what a float64 does not hold is left out, not wrong.
func TestScanExtremes(t *testing.T) {
	v := only(t, safetensors.F64, 4, le(-math.MaxFloat64, math.MaxFloat64, math.MaxFloat64, math.MaxFloat64))
	assert.InEpsilon(t, math.MaxFloat64/2, v.Mean, 1e-15)
	assert.True(t, math.IsNaN(v.Std))
	assert.EqualValues(t, "-1.7976931348623157e+308", v.Histogram.Edges[0])
	for _, x := range []float64{math.SmallestNonzeroFloat64, 1e-310, 3, 1e300} {
		v := only(t, safetensors.F64, 3, le(0, x, -x))
		assert.Equal(t, strconv.FormatFloat(x, 'g', -1, 64), v.Max.String())
		total := int64(0)
		for _, n := range v.Histogram.Counts {
			total += n
		}
		assert.EqualValues(t, 3, total, x)
	}
	// Far from zero and close together.
	v = only(t, safetensors.F64, 3, le(1e9+1, 1e9+2, 1e9+3))
	assert.Equal(t, 1e9+2, v.Mean)
	assert.InDelta(t, math.Sqrt(2./3), v.Std, 1e-12)
}

// plain computes what Scan does, from all elements at once, by the book.
func plain(x []float64) (v Values, lo, hi float64) {
	v.Elements = int64(len(x))
	lo, hi = math.Inf(1), math.Inf(-1)
	n, sum := 0.0, 0.0
	for _, f := range x {
		switch {
		case math.IsNaN(f):
			v.NaN++
			continue
		case math.IsInf(f, 0):
			v.Inf++
			continue
		case f == 0:
			v.Zero++
		}
		n++
		sum += f
		lo, hi = math.Min(lo, f), math.Max(hi, f)
	}
	v.Mean = sum / n
	for _, f := range x {
		if f-f == 0 {
			v.Std += (f - v.Mean) * (f - v.Mean)
		}
	}
	v.Std = math.Sqrt(v.Std / n)
	return v, lo, hi
}

// numeric are the types whose elements float32 or float64 hold.
var numeric = []safetensors.DType{
	safetensors.Bool, safetensors.U8, safetensors.I8,
	safetensors.F8E5M2, safetensors.F8E4M3, safetensors.I16, safetensors.U16,
	safetensors.F16, safetensors.BF16, safetensors.I32, safetensors.U32, safetensors.F32, safetensors.F64, safetensors.I64, safetensors.U64,
}

// decoded is the reference: element by element.
func decoded(t testing.TB, data []byte, d safetensors.DType) []float64 {
	var out []float64
	switch d {
	case safetensors.F64:
		for ; len(data) > 0; data = data[8:] {
			out = append(out, math.Float64frombits(binary.LittleEndian.Uint64(data)))
		}
	case safetensors.I64:
		for ; len(data) > 0; data = data[8:] {
			out = append(out, float64(int64(binary.LittleEndian.Uint64(data))))
		}
	case safetensors.U64:
		for ; len(data) > 0; data = data[8:] {
			out = append(out, float64(binary.LittleEndian.Uint64(data)))
		}
	case safetensors.I32:
		for ; len(data) > 0; data = data[4:] {
			out = append(out, float64(int32(binary.LittleEndian.Uint32(data))))
		}
	case safetensors.U32:
		for ; len(data) > 0; data = data[4:] {
			out = append(out, float64(binary.LittleEndian.Uint32(data)))
		}
	default:
		td, err := tensor.ParseDType(d.String())
		require.NoError(t, err)
		x := make([]float32, len(data)*8/d.Bits())
		require.NoError(t, tensor.ToFloat32(x, data, td))
		for _, f := range x {
			out = append(out, float64(f))
		}
	}
	return out
}

// TestScanProperty compares with the plain computation, for every type, with
// lengths around those of blocks and chunks.
func TestScanProperty(t *testing.T) {
	for _, d := range numeric {
		t.Run(d.String(), func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				n := rapid.SampledFrom([]int{1, 2, 3, 4, 5, 100, sweepBlock - 1, sweepBlock, sweepBlock + 3, 3*sweepBlock + 1}).Draw(r, "n")
				if d.Bits()%8 != 0 {
					n *= 4 // whole bytes
				}
				data := make([]byte, n*d.Bits()/8)
				fillRandom(data, d, rapid.Uint64().Draw(r, "seed"), rapid.SampledFrom([]string{"bits", "normal", "zeros"}).Draw(r, "kind"))
				checkAgainstPlain(t, d, n, data)
			})
		})
	}
}

// fillRandom makes elements: any patterns, or numbers like those of weights.
func fillRandom(data []byte, d safetensors.DType, seed uint64, kind string) {
	rng := rand.New(rand.NewPCG(seed, 1))
	if kind == "zeros" {
		return
	}
	td, _ := tensor.ParseDType(d.String())
	if kind == "normal" && td.IsFloat() {
		x := make([]float32, len(data)*8/d.Bits())
		for i := range x {
			x[i] = float32(rng.NormFloat64() * 0.02)
		}
		_ = tensor.FromFloat32(data, x, td)
		return
	}
	for i := range data {
		data[i] = byte(rng.Uint32())
		if d == safetensors.Bool {
			data[i] &= 1
		}
	}
}

func checkAgainstPlain(t *testing.T, d safetensors.DType, n int, data []byte) {
	got := only(t, d, n, data)
	x := decoded(t, data, d)
	want, lo, hi := plain(x)
	require.Equal(t, []int64{want.Elements, want.NaN, want.Inf, want.Zero}, []int64{got.Elements, got.NaN, got.Inf, got.Zero})
	require.Equal(t, crc32.Checksum(data, castagnoli), got.CRC32C)
	if want.NaN+want.Inf == want.Elements {
		require.Empty(t, got.Min)
		return
	}
	first, err := got.Min.Float64()
	require.NoError(t, err)
	last, err := got.Max.Float64()
	require.NoError(t, err)
	require.Equal(t, []float64{lo + 0, hi + 0}, []float64{first, last})
	scale := max(math.Abs(lo), math.Abs(hi))
	if !math.IsInf(want.Mean, 0) {
		require.InDelta(t, want.Mean/scale, got.Mean/scale, 1e-10)
	}
	if !math.IsInf(want.Std, 0) {
		require.InDelta(t, want.Std/scale, got.Std/scale, 1e-10)
	}
	checkHistogram(t, d, x, got, lo, hi)
}

func checkHistogram(t *testing.T, d safetensors.DType, x []float64, got Values, lo, hi float64) {
	h := got.Histogram
	require.Len(t, h.Edges, len(h.Counts)+1)
	require.LessOrEqual(t, len(h.Counts), mostBins)
	if lo == hi {
		require.Equal(t, []int64{got.Elements - got.NaN - got.Inf}, h.Counts)
		return
	}
	var edges []float64
	for _, e := range h.Edges {
		f, err := e.Float64()
		require.NoError(t, err)
		edges = append(edges, f)
	}
	require.LessOrEqual(t, edges[0], lo)
	require.Greater(t, edges[1], lo)
	require.LessOrEqual(t, edges[len(edges)-2], hi)
	if d == safetensors.I64 || d == safetensors.U64 {
		return // the edges are exact, the reference is not; see TestScanValues
	}
	counts := make([]int64, len(h.Counts))
	for _, f := range x {
		if f-f == 0 {
			i, found := slices.BinarySearch(edges, f)
			if !found {
				i--
			}
			counts[min(i, len(counts)-1)]++
		}
	}
	require.Equal(t, counts, h.Counts)
	if _, wide := math.Frexp(hi/2 - lo/2); wide > -1000 && !(isInteger(d) && hi-lo < mostBins) && hi-lo > 1e-12*max(math.Abs(lo), math.Abs(hi)) {
		require.Greater(t, len(counts), mostBins/2-1, "%v to %v", lo, hi)
	}
}

// TestSpreadProperty: parts that are joined give the grid and the counts of the
// whole, in any order.
func TestSpreadProperty(t *testing.T) {
	number := rapid.OneOf(rapid.Float64(), rapid.Float64Range(-10, 10), rapid.Map(rapid.IntRange(-40, 40), func(i int) float64 { return float64(i) / 8 }))
	rapid.Check(t, func(r *rapid.T) {
		all := rapid.SliceOfN(number, 2, 40).Draw(r, "numbers")
		cut := rapid.IntRange(1, len(all)-1).Draw(r, "cut")
		spreadOf := func(x []float64) spread[int64] {
			s := gridOf(slices.Min(x), slices.Max(x), -1022)
			place(&s, x)
			return s
		}
		a, b, want := spreadOf(all[:cut]), spreadOf(all[cut:]), spreadOf(all)
		ab, ba := a, b
		ab.add(&b)
		ba.add(&a)
		require.Equal(r, want, ab)
		require.Equal(r, want, ba)

		keys := make([]uint64, len(all))
		for i, x := range all {
			keys[i] = math.Float64bits(x)
		}
		keysOf := func(x []uint64) spread[uint64] {
			s := keyGridOf(slices.Min(x), slices.Max(x))
			s.n = int64(len(x))
			for _, k := range x {
				s.counts[k>>s.exp-s.base]++
			}
			return s
		}
		k := keysOf(keys[:cut])
		other := keysOf(keys[cut:])
		k.add(&other)
		require.Equal(r, keysOf(keys), k)
	})
}

// TestScanChunks: a tensor of several chunks gives the same for any number of
// threads, and what one of its halves and the other give.
func TestScanChunks(t *testing.T) {
	n := (chunkSize + 3*blockSize) / 2
	data := make([]byte, 2*n)
	fillRandom(data, safetensors.BF16, 7, "normal")
	wide := make([]byte, 4*n)
	fillRandom(wide, safetensors.F32, 8, "bits")
	f := file(t,
		safetensors.Entry{Name: "bf16", DType: safetensors.BF16, Shape: []int{n}, Data: data},
		safetensors.Entry{Name: "f32", DType: safetensors.F32, Shape: []int{n}, Data: wide},
		safetensors.Entry{Name: "small", DType: safetensors.U8, Shape: []int{3}, Data: []byte{1, 2, 3}})
	views := []*safetensors.View{view(t, f, "small"), view(t, f, "bf16"), view(t, f, "f32")}
	var first []Values
	for _, threads := range []int{1, 2, 7, 0} {
		last := int64(0)
		values, err := Scan(t.Context(), views, Options{Checksums: true, Threads: threads, Progress: func(done, total int64) {
			assert.Greater(t, done, last)
			assert.EqualValues(t, 3+6*n, total)
			last = done
		}})
		require.NoError(t, err)
		assert.EqualValues(t, 3+6*n, last)
		if first == nil {
			first = values
		}
		assert.Equal(t, first, values)
	}
	checkAgainstPlain(t, safetensors.BF16, n, data)
	checkAgainstPlain(t, safetensors.F32, n, wide)
}

// TestScanStops when asked to, and goes on where one tensor cannot be read.
func TestScanStops(t *testing.T) {
	f := file(t, safetensors.Entry{Name: "x", DType: safetensors.U8, Shape: []int{3}, Data: []byte{1, 2, 3}})
	g := file(t, safetensors.Entry{Name: "x", DType: safetensors.U8, Shape: []int{9}, Data: make([]byte, 9)})
	x, y := view(t, f, "x"), view(t, g, "x")
	require.NoError(t, g.Close())
	values, err := Scan(t.Context(), []*safetensors.View{y, x}, Options{})
	require.NoError(t, err)
	assert.ErrorIs(t, values[0].Err, safetensors.ErrClosed)
	assert.EqualValues(t, "3", values[1].Max)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Scan(ctx, []*safetensors.View{x}, Options{})
	assert.ErrorIs(t, err, context.Canceled)
}

// TestScanFault: a file that was cut short is an error of its tensors.
func TestScanFault(t *testing.T) {
	data := make([]byte, 4<<20)
	path := filepath.Join(t.TempDir(), "x.safetensors")
	require.NoError(t, safetensors.WriteFile(path, []safetensors.Entry{{Name: "x", DType: safetensors.U8, Shape: []int{len(data)}, Data: data}}, nil))
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	defer f.Close()
	if err := os.Truncate(path, 1<<20); err != nil {
		t.Skip(err) // mapped files cannot be cut short on Windows
	}
	values, err := Scan(t.Context(), []*safetensors.View{view(t, f, "x")}, Options{})
	require.NoError(t, err)
	assert.ErrorIs(t, values[0].Err, safetensors.ErrFault)
}

func TestCombineCRC(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		a, b := rapid.SliceOf(rapid.Byte()).Draw(r, "a"), rapid.SliceOf(rapid.Byte()).Draw(r, "b")
		got := combineCRC(crc32.Checksum(a, castagnoli), crc32.Checksum(b, castagnoli), int64(len(b)))
		assert.Equal(r, crc32.Checksum(slices.Concat(a, b), castagnoli), got)
	})
}

// BenchmarkScan is the speed of a scan that is all in the page cache.
func BenchmarkScan(b *testing.B) {
	for _, d := range []safetensors.DType{safetensors.U8, safetensors.F8E4M3, safetensors.BF16, safetensors.F32, safetensors.F64, safetensors.I64} {
		data := make([]byte, 64<<20)
		fillRandom(data, d, 1, "normal")
		f := file(b, safetensors.Entry{Name: "x", DType: d, Shape: []int{len(data) * 8 / d.Bits()}, Data: data})
		v := view(b, f, "x")
		for _, sums := range []bool{false, true} {
			b.Run(fmt.Sprint(d, "/checksums=", sums), func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				for b.Loop() {
					if _, err := Scan(b.Context(), []*safetensors.View{v}, Options{Checksums: sums, Threads: 1}); err != nil && !errors.Is(err, io.EOF) {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
