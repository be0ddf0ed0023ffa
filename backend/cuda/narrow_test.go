//go:build cuda && linux

package cuda_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// narrowCase is a set of products by kernels/cuda/gemm_narrow.cu that one launch computes.
type narrowCase struct {
	name   string
	kernel string
	rows   int
	widths []int // of the large matrices; one for all products, or one for each pair
	ranks  []int
	pairs  bool // dyᵀ·h and dy·B; x·Aᵀ or dhᵀ·x otherwise
	grad   bool
	c      bool // the results have an addend
}

var narrowCases = []narrowCase{
	{"one adapter", "gemm_narrow_down_32", 600, []int{1096}, []int{8}, false, false, false},
	{"adapters of three linears", "gemm_narrow_down_64", 641, []int{2056}, []int{8, 24, 16}, false, false, false},
	{"gradient of one adapter", "gemm_narrow_grad_64", 1030, []int{520}, []int{40}, false, true, true},
	{"gradients of adapters of two linears", "gemm_narrow_grad_32", 700, []int{264}, []int{16, 8}, false, true, true},
	{"backward", "gemm_narrow_back_64", 1030, []int{264}, []int{64}, true, false, true},
	{"backward of three linears", "gemm_narrow_back_32", 523, []int{520, 256, 304}, []int{8, 24, 16}, true, false, true},
}

// TestNarrow compares products with float64, and with the same products alone, whose bits are the same.
func TestNarrow(t *testing.T) {
	dev := opened(t, backend.Options{Precision: backend.BF16})
	for _, c := range narrowCases {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			args := map[string]*tensor.Tensor{}
			var wants [][]float64
			var builds []func(g *graph.Graph) []graph.Tensor
			param := func(g *graph.Graph, name string, d tensor.DType, shape ...int) ir.Value {
				if args[name] == nil {
					args[name] = matrix(t, rng, d, shape...)
				}
				return g.Param(name, d, ir.ShapeOf(shape...)...).Value()
			}
			product := func(g *graph.Graph, x, y ir.Value, p factors, i int, m, n int) graph.Tensor {
				var addend ir.Value
				if c.c {
					addend = param(g, fmt.Sprintf("c%d%v", i, p.ta), tensor.F32, m, n)
				}
				return g.Of(g.IR().Gemm([]ir.Product{{A: x, B: y, TA: p.ta, TB: p.tb, Alpha: p.alpha}}, 0, addend))
			}
			want := func(a, b string, p factors, i int, m, n int) {
				w := make([]float64, m*n)
				if c.c {
					copy(w, operand(t, args[fmt.Sprintf("c%d%v", i, p.ta)], false))
				}
				accumulate(w, operand(t, args[a], true), operand(t, args[b], true), 1, m, n, p)
				wants = append(wants, w)
			}
			for i, r := range c.ranks {
				width, x := c.widths[i%len(c.widths)], fmt.Sprintf("x%d", i%len(c.widths))
				alpha := float32(i) - 1.5
				a, h := fmt.Sprintf("a%d", i), fmt.Sprintf("h%d", i)
				down, left, right := factors{k: width, tb: true, alpha: alpha}, factors{k: c.rows, ta: true, alpha: alpha}, factors{k: width, alpha: 2}
				build := func(g *graph.Graph) []graph.Tensor {
					big := param(g, x, tensor.BF16, c.rows, width)
					switch {
					case c.pairs:
						return []graph.Tensor{product(g, big, param(g, h, tensor.F32, c.rows, r), left, i, width, r), product(g, big, param(g, a, tensor.F32, width, r), right, i, c.rows, r)}
					case c.grad:
						return []graph.Tensor{product(g, param(g, h, tensor.F32, c.rows, r), big, left, i, r, width)}
					}
					return []graph.Tensor{product(g, big, param(g, a, tensor.F32, r, width), down, i, c.rows, r)}
				}
				build(graph.New())
				builds = append(builds, build)
				switch {
				case c.pairs:
					want(x, h, left, i, width, r)
					want(x, a, right, i, c.rows, r)
				case c.grad:
					want(h, x, left, i, r, width)
				default:
					want(x, a, down, i, c.rows, r)
				}
			}
			run := func(builds ...func(g *graph.Graph) []graph.Tensor) []*tensor.Tensor {
				g := graph.New()
				var roots []graph.Tensor
				for _, build := range builds {
					roots = append(roots, build(g)...)
				}
				used := map[string]*tensor.Tensor{}
				for name, x := range args {
					if _, ok := g.IR().Lookup(name); ok {
						used[name] = x
					}
				}
				out, err := graph.Eval(context.Background(), dev, roots, used, nil)
				require.NoError(t, err)
				return out
			}
			together := run(builds...)
			require.Contains(t, dev.Kernels(), c.kernel)
			var alone []*tensor.Tensor
			for _, build := range builds {
				alone = append(alone, run(build)...)
			}
			for i, w := range wants {
				requireClose(t, w, together[i])
				require.Equal(t, alone[i].Data, together[i].Data, "result %d alone", i)
			}
		})
	}
}
