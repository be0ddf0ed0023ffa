package conformance

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// companyRows holds rows of x, their index, and rows of dy.
type companyRows struct {
	x, dy []float32
	index []int32
}

// runRowsCompany checks that rows of a RowsGemm and their gradients do not depend on the other rows, bit for bit. The
// gradient of a matrix must depend only on its own rows.
func runRowsCompany(t *testing.T, dev backend.Device) {
	for _, size := range []struct{ reads, gives int }{{300, 16}, {16, 140}, {40, 40}} {
		t.Run(fmt.Sprintf("%d by %d", size.reads, size.gives), func(t *testing.T) {
			const n = 300
			r := rand.New(rand.NewPCG(1, 2))
			noise := func(n int) (x []float32) {
				for range n {
					x = append(x, float32(r.NormFloat64()))
				}
				return x
			}
			all := companyRows{x: noise(n * size.reads), dy: noise(n * size.gives)}
			for range n {
				all.index = append(all.index, int32(r.IntN(5)-1))
			}
			var weights [][]float32
			for range 4 {
				weights = append(weights, noise(size.reads*size.gives))
			}
			own := func(e int32) func(int) bool { return func(i int) bool { return all.index[i] == e } }
			together := all.run(t, dev, size.reads, size.gives, weights)
			for name, pick := range map[string]func(i int) bool{
				"one row": func(i int) bool { return i == 77 }, "some rows": func(i int) bool { return i%11 == 3 }, "half": func(i int) bool { return i < n/2 },
				"one matrix": own(0), "the last matrix": own(3), "nearly all": func(i int) bool { return i > 20 },
			} {
				var some companyRows
				var rows []int
				for i := range n {
					if pick(i) {
						rows = append(rows, i)
						some.x = append(some.x, all.x[i*size.reads:][:size.reads]...)
						some.dy = append(some.dy, all.dy[i*size.gives:][:size.gives]...)
						some.index = append(some.index, all.index[i])
					}
				}
				got := some.run(t, dev, size.reads, size.gives, weights)
				for o, width := range []int{size.gives, size.reads} {
					for at, i := range rows {
						require.Equal(t, together[o][i*width:][:width], got[o][at*width:][:width], "%s: row %d of output %d", name, i, o)
					}
				}
				switch name {
				case "one matrix":
					require.Equal(t, together[2], got[2], name)
				case "the last matrix":
					require.Equal(t, together[5], got[5], name)
				}
			}
		})
	}
}

// run returns the product, the gradient of x and the gradients of the matrices.
func (c *companyRows) run(t *testing.T, dev backend.Device, reads, gives int, weights [][]float32) [][]float32 {
	t.Helper()
	n, g := len(c.index), graph.New()
	args := map[string]*tensor.Tensor{}
	float := func(name string, x []float32, rows, cols int) graph.Tensor {
		host, err := tensor.FromFloat32s(x, rows, cols)
		require.NoError(t, err)
		args[name] = &host
		return g.Param(name, tensor.F32, ir.ShapeOf(rows, cols)...)
	}
	bytes := make([]byte, 0, 4*n)
	for _, e := range c.index {
		bytes = binary.LittleEndian.AppendUint32(bytes, uint32(e))
	}
	args["index"] = &tensor.Tensor{DType: tensor.I32, Shape: []int{n}, Data: bytes}
	x, dy, index := float("x", c.x, n, reads), float("dy", c.dy, n, gives), g.Param("index", tensor.I32, ir.Static(n))
	w := graph.RowsWeights{}
	wrt := []graph.Tensor{x}
	for i, v := range weights {
		w.Matrices = append(w.Matrices, float(fmt.Sprintf("w%d", i), v, gives, reads))
	}
	wrt = append(wrt, w.Matrices...)
	y := x.RowsGemm(index, w, graph.Tensor{})
	outs := append([]graph.Tensor{y}, g.Gradients(y.Mul(dy).Sum(1).Sum(0), wrt, false)...)
	got := evalFloats(t, dev, outs, args)
	for _, out := range got {
		for _, v := range out {
			require.False(t, math.IsNaN(float64(v)))
		}
	}
	return got
}
