package cpu_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/dev/gputest"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// mixed is a linear layer on a batch of rows, each with an adapter of its own or
// none, and the gradients of Σ dy·y for its inputs and for all adapters.
type mixed struct {
	*gputest.Bound
	most int
}

const (
	mixedIn, mixedOut = 96, 160
)

var mixedRanks = []int{4, 8, 16, 32, 64, 64}

// newMixed has a frozen weight where base says so.
func newMixed(t testing.TB, o backend.Options, most int, base bool) *mixed {
	dev, err := cpu.Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	g, s := graph.New(), ir.Static
	n := g.Bound("n", most)
	x, dy, index := g.Param("x", tensor.F32, n, s(mixedIn)), g.Param("dy", tensor.F32, n, s(mixedOut)), g.Param("index", tensor.I32, n)
	downs, ups := graph.RowsWeights{}, graph.RowsWeights{Out: mixedOut, Scale: g.Param("scale", tensor.F32, s(len(mixedRanks)))}
	wrt := []graph.Tensor{x}
	for e, r := range mixedRanks {
		downs.Matrices = append(downs.Matrices, g.Param(fmt.Sprintf("a%d", e), tensor.F32, s(r), s(mixedIn)))
		ups.Matrices = append(ups.Matrices, g.Param(fmt.Sprintf("b%d", e), tensor.F32, s(mixedOut), s(r)))
		wrt = append(wrt, downs.Matrices[e], ups.Matrices[e])
	}
	var c graph.Tensor
	if base {
		c = x.Linear(g.Param("w", tensor.BF16, s(mixedOut), s(mixedIn)), graph.Tensor{})
	}
	y := x.RowsGemm(index, downs, graph.Tensor{}).RowsGemm(index, ups, c)
	p := g.Program().Result("y", y)
	for i, d := range g.Gradients(y.Mul(dy).Sum(1).Sum(0), wrt, false) {
		p.Result(fmt.Sprintf("d%d", i), d)
	}
	return &mixed{gputest.Bind(t, dev, p), most}
}

// batch is what a mixed layer reads.
type batch struct {
	x, dy    []float32
	index    []int32
	adapters [][2][]float32 // A and B
	w        []float32
}

func newBatch(r *rand.Rand, rows int) *batch {
	normal := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	b := &batch{x: normal(rows * mixedIn), dy: normal(rows * mixedOut), w: normal(mixedIn * mixedOut)}
	for _, rank := range mixedRanks {
		b.adapters = append(b.adapters, [2][]float32{normal(rank * mixedIn), normal(rank * mixedOut)})
	}
	for range rows {
		b.index = append(b.index, int32(r.IntN(len(mixedRanks)+1))-1)
	}
	return b
}

// rows is the batch of some of the rows.
func (b *batch) rows(which []int) *batch {
	c := &batch{adapters: b.adapters, w: b.w}
	for _, i := range which {
		c.x, c.dy = append(c.x, b.x[i*mixedIn:(i+1)*mixedIn]...), append(c.dy, b.dy[i*mixedOut:(i+1)*mixedOut]...)
		c.index = append(c.index, b.index[i])
	}
	return c
}

func floatBytes(x []float32) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// run gives the bytes of the results by name.
func (m *mixed) run(t require.TestingT, b *batch) map[string][]byte {
	scale := make([]float32, len(mixedRanks))
	for e, r := range mixedRanks {
		scale[e] = 16 / float32(r)
		if e%2 == 1 { // rsLoRA
			scale[e] = 16 / float32(math.Sqrt(float64(r)))
		}
		m.Set(t, fmt.Sprintf("a%d", e), floatBytes(b.adapters[e][0]))
		m.Set(t, fmt.Sprintf("b%d", e), floatBytes(b.adapters[e][1]))
	}
	w := make([]byte, 2*len(b.w))
	require.NoError(t, tensor.FromFloat32(w, b.w, tensor.BF16))
	m.Set(t, "w", w)
	m.Set(t, "scale", floatBytes(scale))
	m.Set(t, "x", floatBytes(b.x))
	m.Set(t, "dy", floatBytes(b.dy))
	index := make([]byte, 0, 4*len(b.index))
	for _, e := range b.index {
		index = binary.LittleEndian.AppendUint32(index, uint32(e))
	}
	m.Set(t, "index", index)
	require.NoError(t, m.SetDim("n", len(b.index)))
	require.NoError(t, m.RunWait(context.Background()))
	out := map[string][]byte{}
	for _, a := range m.Program().Args {
		if a.Written {
			out[a.Name] = m.Get(t, a.Name, a.Type.Bytes([]int{0, len(b.index)}))
		}
	}
	return out
}

// row is row i of a result of so many columns.
func row(b []byte, i, cols int) []byte { return b[4*i*cols : 4*(i+1)*cols] }

// TestMixedRows: a row gives the same bits alone and in any company, order and
// number of threads, and so does the gradient of an adapter; an adapter of NaN
// stays with its rows.
func TestMixedRows(t *testing.T) {
	for _, base := range []bool{false, true} {
		t.Run(fmt.Sprintf("base %v", base), func(t *testing.T) {
			const most = 80
			one := newMixed(t, backend.Options{Threads: 1, BatchInvariant: base}, most, base)
			two := newMixed(t, backend.Options{Threads: 2, BatchInvariant: base}, most, base)
			rapid.Check(t, func(t *rapid.T) {
				n := rapid.OneOf(rapid.IntRange(1, 10), rapid.IntRange(11, most)).Draw(t, "rows")
				r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
				b := newBatch(r, n)
				if rapid.Bool().Draw(t, "sorted") {
					slices.Sort(b.index)
				}
				whole := one.run(t, b)
				require.Equal(t, whole, two.run(t, b), "threads")

				bad := int32(r.IntN(len(mixedRanks)))
				ill := b.rows(r.Perm(n)[:0])
				*ill = *b
				ill.adapters = slices.Clone(b.adapters)
				nan := func(n int) []float32 { return slices.Repeat([]float32{float32(math.NaN())}, n) }
				ill.adapters[bad] = [2][]float32{nan(len(b.adapters[bad][0])), nan(len(b.adapters[bad][1]))}
				poisoned := two.run(t, ill)

				which := r.Perm(n)[:rapid.OneOf(rapid.Just(1), rapid.IntRange(1, n)).Draw(t, "some")]
				some := two.run(t, b.rows(which))
				for at, i := range which {
					require.Equal(t, row(whole["y"], i, mixedOut), row(some["y"], at, mixedOut), "row %d of %d as %d of %d", i, n, at, len(which))
					require.Equal(t, row(whole["d0"], i, mixedIn), row(some["d0"], at, mixedIn), "gradient of row %d of %d", i, n)
					if b.index[i] != bad {
						require.Equal(t, row(whole["y"], i, mixedOut), row(poisoned["y"], i, mixedOut), "row %d beside NaN", i)
						require.Equal(t, row(whole["d0"], i, mixedIn), row(poisoned["d0"], i, mixedIn), "gradient of row %d beside NaN", i)
					}
				}
				e := int32(r.IntN(len(mixedRanks)))
				var own []int
				for i, at := range b.index {
					if at == e {
						own = append(own, i)
					}
				}
				if len(own) > 0 {
					only := one.run(t, b.rows(own))
					for _, d := range []string{fmt.Sprintf("d%d", 1+2*e), fmt.Sprintf("d%d", 2+2*e)} {
						require.Equal(t, whole[d], only[d], "gradient of adapter %d alone", e)
						if e != bad {
							require.Equal(t, whole[d], poisoned[d], "gradient of adapter %d beside NaN", e)
						}
					}
				}
			})
		})
	}
}

// TestMixedIndex: an index without a matrix is an error that names row and value.
func TestMixedIndex(t *testing.T) {
	m := newMixed(t, backend.Options{}, 4, false)
	b := newBatch(rand.New(rand.NewPCG(1, 2)), 4)
	b.index = []int32{0, -1, 6, 2}
	_ = m.run(t, b.rows([]int{0, 1, 3}))
	index := []byte{0, 0, 0, 0, 255, 255, 255, 255, 6, 0, 0, 0, 2, 0, 0, 0}
	m.Set(t, "index", index)
	require.NoError(t, m.SetDim("n", 4))
	require.EqualError(t, m.RunWait(context.Background()), "cpu: RowsGemm: index 6 at 2, there are 6 matrices")
}

// TestScatterIndex: an index that the table has no row for is an error.
func TestScatterIndex(t *testing.T) {
	dev, err := cpu.Open(backend.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	g, s := graph.New(), ir.Static
	y := g.Const(0, s(4), s(2)).ScatterRows(g.Const(1, s(2), s(2)), g.Param("index", tensor.I32, s(2)))
	for bad, data := range map[string][]byte{"": {255, 255, 255, 255, 3, 0, 0, 0}, "cpu: ScatterRows: index 4 at 1, the table has 4 rows": {1, 0, 0, 0, 4, 0, 0, 0}} {
		out, err := graph.Eval(context.Background(), dev, []graph.Tensor{y}, map[string]*tensor.Tensor{"index": {DType: tensor.I32, Shape: []int{2}, Data: data}}, nil)
		if bad != "" {
			require.EqualError(t, err, bad)
			continue
		}
		require.NoError(t, err)
		x, err := out[0].Float32s()
		require.NoError(t, err)
		require.Equal(t, []float32{0, 0, 0, 0, 0, 0, 1, 1}, x)
	}
}
