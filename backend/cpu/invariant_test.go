package cpu_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/dev/gputest"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// decoder is a layer of a transformer with a key-value cache.
type decoder struct {
	decoderSizes
	*gputest.Bound
}

type decoderSizes struct{ rows, heads, size, hidden int }

func (d decoderSizes) width() int { return d.heads * d.size }

var odd = decoderSizes{rows: 512, heads: 3, size: 44, hidden: 301}

func newDecoder(t testing.TB, o backend.Options, sizes decoderSizes) *decoder {
	dev, err := cpu.Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	d := &decoder{decoderSizes: sizes}
	g, s := graph.New(), ir.Static
	decoderRows, decoderWidth, heads, size, hidden := d.rows, d.width(), d.heads, d.size, d.hidden
	n := g.Bound("n", decoderRows)
	x, pos := g.Param("x", tensor.F32, n, s(decoderWidth)), g.Param("pos", tensor.I32, n)
	lo, hi, offset := g.Param("lo", tensor.I32, n), g.Param("hi", tensor.I32, n), g.Param("offset", tensor.I32, s(1))
	weight := func(name string, dtype tensor.DType, out, in int) graph.Tensor {
		return g.Param(name, dtype, s(out), s(in))
	}
	lora := func(name string, x graph.Tensor, dtype tensor.DType, out, in int) graph.Tensor {
		h := x.Linear(weight(name+".a", tensor.F32, 4, in), graph.Tensor{})
		return x.LoRA(weight(name, dtype, out, in), graph.Tensor{}, h, weight(name+".b", tensor.F32, out, 4), 2)
	}
	table := pos.RoPETable(g.Param("freq", tensor.F32, s(size/2)), 1)
	y := x.RMSNorm(g.Param("norm", tensor.F32, s(decoderWidth)), 1e-6)
	q := lora("q", y, tensor.BF16, decoderWidth, decoderWidth).RoPE(table, size)
	keys := g.Param("keys", tensor.F32, s(decoderRows), s(size)).UpdateRows(y.Linear(weight("k", tensor.F32, size, decoderWidth), graph.Tensor{}).RoPE(table, size), offset)
	values := g.Param("values", tensor.F32, s(decoderRows), s(size)).UpdateRows(y.Linear(weight("v", tensor.F16, size, decoderWidth), graph.Tensor{}), offset)
	seen := q.Attention(keys, values, lo, hi, ir.AttentionAttr{Heads: heads, KVHeads: 1, HeadDim: size, Scale: 0.2})
	x = x.Add(lora("o", seen, tensor.F32, decoderWidth, decoderWidth))
	z := x.LayerNorm(graph.Tensor{}, graph.Tensor{}, 1e-5)
	x = x.Add(z.Linear(weight("gate", tensor.BF16, hidden, decoderWidth), graph.Tensor{}).GLU(z.Linear(weight("up", tensor.BF16, hidden, decoderWidth), graph.Tensor{}), ir.SiLU).Linear(weight("down", tensor.BF16, decoderWidth, hidden), graph.Tensor{}))
	d.Bound = gputest.Bind(t, dev, g.Program().Result("y", x.Softmax()).Update("keys", keys).Update("values", values))
	r := rand.New(rand.NewPCG(5, 6))
	for _, a := range d.Program().Args {
		if a.Written || a.Type.DType == tensor.I32 || a.Name == "x" {
			continue
		}
		x := make([]float32, a.Type.Shape.Elements([]int{0, decoderRows}))
		for i := range x {
			x[i] = float32(r.NormFloat64()) / 8
		}
		b := make([]byte, a.Type.Bytes([]int{0, decoderRows}))
		require.NoError(t, tensor.FromFloat32(b, x, a.Type.DType))
		d.Set(t, a.Name, b)
	}
	return d
}

// text runs rows [from,to) of a text whose first ones are in the cache.
func (d *decoder) text(t testing.TB, x []float32, from, to int) []byte {
	decoderWidth := d.width()
	var pos, lo, hi []byte
	for i := from; i < to; i++ {
		pos, lo = binary.LittleEndian.AppendUint32(pos, uint32(i)), binary.LittleEndian.AppendUint32(lo, 0)
		hi = binary.LittleEndian.AppendUint32(hi, uint32(i+1))
	}
	for name, b := range map[string][]byte{"pos": pos, "lo": lo, "hi": hi, "offset": binary.LittleEndian.AppendUint32(nil, uint32(from)),
		"x": floatBytes(x[from*decoderWidth : to*decoderWidth])} {
		d.Set(t, name, b)
	}
	require.NoError(t, d.SetDim("n", to-from))
	require.NoError(t, d.RunWait(context.Background()))
	return d.Get(t, "y", 4*decoderWidth*(to-from))
}

// TestBatchInvariant: with the option, a text gives the same bits in one piece of 512
// rows, in pieces of any length, and row by row.
func TestBatchInvariant(t *testing.T) {
	decoderRows, decoderWidth := odd.rows, odd.width()
	x := make([]float32, decoderRows*decoderWidth)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	whole := newDecoder(t, backend.Options{Threads: 2, BatchInvariant: true}, odd).text(t, x, 0, decoderRows)
	parts := newDecoder(t, backend.Options{Threads: 1, BatchInvariant: true}, odd)
	ends := []int{300, 301, 302, 305, 313, 345, 346, 410, 411, 412, 413, 414, 415, 416, 500, 511, 512}
	for i, to := range ends {
		from := 0
		if i > 0 {
			from = ends[i-1]
		}
		got := parts.text(t, x, from, to)
		for j := from; j < to; j++ {
			require.Equal(t, row(whole, j, decoderWidth), row(got, j-from, decoderWidth), "row %d in [%d,%d)", j, from, to)
		}
	}
	require.True(t, slices.ContainsFunc(whole, func(b byte) bool { return b != 0 }))
}
