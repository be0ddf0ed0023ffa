package gpu

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/graph/conformance"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// builder makes a program of a graph.
type builder struct {
	*ir.Graph
	params int
}

// param is an argument, of a type such as f32 and of fixed sizes.
func (b *builder) param(d tensor.DType, sizes ...int) ir.Value {
	b.params++
	return b.Param(fmt.Sprintf("in%d", b.params), ir.Type{DType: d, Shape: ir.ShapeOf(sizes...)})
}

// program plans what build makes.
func program(t testing.TB, name string, build func(b *builder) exec.Spec) conformance.Program {
	t.Helper()
	b := &builder{Graph: ir.New()}
	p, err := exec.Plan(b.Graph, build(b), Supports)
	require.NoError(t, err, name)
	return conformance.Program{Name: name, Program: p, Dims: p.MaxDims()}
}

// results are outputs of a program.
func results(values ...ir.Value) (s exec.Spec) {
	for i, v := range values {
		s.Results = append(s.Results, exec.Result{Name: fmt.Sprintf("out%d", i), Value: v})
	}
	return s
}

// narrowed stores all values as bf16 that kernels take so, but for those at the given places of ScatterRows.
func narrowed(s exec.Spec, except ...int) exec.Spec {
	s.Store, s.StoreAll = tensor.BF16, true
	s.Stores = func(op ir.Op, attr any, in []ir.Type, at ir.Place, _ tensor.DType) bool {
		return Stores(op, attr, in, at) && !(op == ir.ScatterRows && slices.Contains(except, at.Index))
	}
	return s
}

// variants are programs for the kernels that no case of the conformance suite needs:
// those of other element types, sizes of heads, and long axes.
func variants(t testing.TB) []conformance.Program {
	t.Helper()
	list := []conformance.Program{
		program(t, "casts", casts), program(t, "pairs", pairs), program(t, "moves", moves),
		program(t, "long rows", func(b *builder) exec.Spec {
			x := b.param(tensor.F32, 3, 5000)
			return results(b.Softmax(x), b.Reduce(ir.ReduceMax, x, 1), b.LoRADown(b.param(tensor.F32, 40, 96), b.param(tensor.F32, 24, 96), b.Param("key", ir.RandomKey), ir.DropoutAttr{P: 0.1, Stream: 3}))
		}),
		program(t, "narrow products", func(b *builder) exec.Spec { return narrowProducts(b, 8) }),
		program(t, "wider narrow products", func(b *builder) exec.Spec { return narrowProducts(b, 40) }),
		program(t, "large products", func(b *builder) exec.Spec {
			return results(b.Linear(b.param(tensor.F32, 1500, 64), b.param(tensor.BF16, 1500, 64), 0))
		}),
		program(t, "a large image", func(b *builder) exec.Spec {
			return results(b.Conv2D(b.param(tensor.F32, 1, 130, 130, 3), b.param(tensor.BF16, 70, 3, 3, 3), 0, ir.Conv2DAttr{Stride: 1}))
		}),
		program(t, "factors far apart", func(b *builder) exec.Spec {
			x, w := b.param(tensor.F32, 40, 64), b.param(tensor.F32, 70, 64)
			return results(b.Gemm([]ir.Product{{A: x, B: w, TB: true, Alpha: 1}, {A: x, B: w, TB: true, Alpha: 0x1p-70}}, 0, 0))
		}),
		program(t, "cache of scattered rows", func(b *builder) exec.Spec { return cacheSpec(b, (*ir.Graph).ScatterRows, 3) }),
		program(t, "cache of consecutive rows", func(b *builder) exec.Spec { return cacheSpec(b, (*ir.Graph).UpdateRows, 1) }),
		program(t, "cache in bf16", func(b *builder) exec.Spec { return narrowed(cacheSpec(b, (*ir.Graph).ScatterRows, 3)) }),
		program(t, "rows into a cache in bf16", func(b *builder) (s exec.Spec) {
			index := b.param(tensor.I32, 3)
			for range 2 {
				x := b.param(tensor.F32, 3, 16)
				s.Updates = append(s.Updates, exec.Update{Param: fmt.Sprintf("in%d", b.params+1), Value: b.ScatterRows(b.param(tensor.F32, 40, 16), x, index)})
			}
			return narrowed(s, 1)
		}),
		program(t, "rows of all types as bf16", func(b *builder) exec.Spec { return narrowed(casts(b)) }),
		program(t, "rows of bf16 into a table", func(b *builder) exec.Spec {
			return narrowed(results(b.ScatterRows(b.param(tensor.F32, 40, 16), b.param(tensor.F32, 3, 16), b.param(tensor.I32, 3))), 0)
		}),
		program(t, "steps in place", func(b *builder) (s exec.Spec) {
			rates, scale := b.param(tensor.F32, 3), b.param(tensor.F32)
			for range 12 {
				var in []ir.Value
				for range 4 {
					in = append(in, b.param(tensor.F32, 1500))
				}
				w := b.Apply(ir.AdamW, ir.AdamWAttr{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}, in[0], in[1], in[2], in[3], rates, scale)
				for i := range 3 {
					s.Updates = append(s.Updates, exec.Update{Param: fmt.Sprintf("in%d", b.params-3+i), Value: b.Out(w, i)})
				}
			}
			return s
		}),
	}
	list = append(list, program(t, "steps of 8 bits in place", func(b *builder) (s exec.Spec) {
		rates, maps := b.param(tensor.F32, 3), b.param(tensor.F32, 2, 256)
		var norm ir.Value
		var grads []ir.Value
		for i := range 3 {
			grads = append(grads, b.param(tensor.F32, 20000))
			if sum := b.SumSquares(grads[i]); i == 0 {
				norm = sum
			} else {
				norm = b.Add(norm, sum)
			}
		}
		for _, grad := range grads {
			first := b.params
			p, m, v := b.param(tensor.F32, 20000), b.param(tensor.U8, 20000), b.param(tensor.U8, 20000)
			out := b.AdamW8(p, m, v, b.param(tensor.F32, 79), b.param(tensor.F32, 79), grad, maps, rates, norm, ir.AdamWAttr{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8})
			for i, x := range out {
				s.Updates = append(s.Updates, exec.Update{Param: fmt.Sprintf("in%d", first+1+i), Value: x})
			}
		}
		for range 6 {
			p := b.param(tensor.F32, 5000)
			s.Updates = append(s.Updates, exec.Update{Param: fmt.Sprintf("in%d", b.params), Value: b.Const(0, b.Type(p))})
		}
		return s
	}))
	for _, d := range []tensor.DType{tensor.F16, tensor.Q8, tensor.NF4, tensor.FP4} {
		list = append(list, program(t, "parts of "+strings.ToLower(d.String()), func(b *builder) exec.Spec {
			return results(b.Linear(b.param(tensor.F32, 40, 2048), b.param(d, 64, 2048), 0))
		}))
	}
	for _, rows := range []int{12, 20, 40} {
		list = append(list, program(t, fmt.Sprintf("a batch of %d rows", rows), func(b *builder) exec.Spec {
			x := b.param(tensor.F32, rows, 512)
			return results(b.Linear(x, b.param(tensor.BF16, 130, 512), b.param(tensor.F32, 130)), b.Linear(x, b.param(tensor.BF16, 64, 512), 0))
		}))
	}
	for _, size := range []int{32, 64, 96, 128, 256} {
		list = append(list, program(t, fmt.Sprintf("capped attention of 70 queries, heads of %d", size), func(b *builder) exec.Spec {
			q, k, ends := b.param(tensor.F32, 70, 2*size), b.param(tensor.F32, 600, size), b.param(tensor.I32, 70)
			o, _ := b.Attention(q, k, k, ends, ends, ir.AttentionAttr{Heads: 2, KVHeads: 1, HeadDim: size, Scale: 0.1, SoftCap: 30})
			return results(o)
		}))
		for _, group := range []int{1, 2, 4, 8} {
			for _, queries := range []int{3, 70} {
				list = append(list, program(t, fmt.Sprintf("attention of %d queries, heads of %d, %d with a key", queries, size, group), func(b *builder) exec.Spec {
					return attentionSpec(b, size, group, queries)
				}))
				list = append(list, program(t, fmt.Sprintf("attention of %d queries in bf16, heads of %d, %d with a key", queries, size, group), func(b *builder) exec.Spec {
					return narrowed(attentionSpec(b, size, group, queries))
				}))
			}
		}
	}
	return list
}

// attentionSpec is attention with its gradients.
func attentionSpec(b *builder, size, group, queries int) exec.Spec {
	q, k, v := b.param(tensor.F32, queries, 2*group*size), b.param(tensor.F32, 600, 2*size), b.param(tensor.F32, 600, 2*size)
	o, _ := b.Attention(q, k, v, b.param(tensor.I32, queries), b.param(tensor.I32, queries), ir.AttentionAttr{Heads: 2 * group, KVHeads: 2, HeadDim: size, Scale: 0.1})
	sum := b.Reduce(ir.ReduceSum, b.Reduce(ir.ReduceSum, b.Mul(o, b.param(tensor.F32, queries, 2*group*size)), 1), 0)
	return results(append(b.Gradients(sum, []ir.Value{q, k, v}, ir.GradOptions{}), o)...)
}

// cacheSpec rotates queries and keys, and writes keys and values to a cache.
func cacheSpec(b *builder, write func(g *ir.Graph, table, rows, index ir.Value) ir.Value, indices int) (s exec.Spec) {
	a, table, index := ir.RoPEAttr{HeadDim: 8}, b.param(tensor.F32, 3, 8), b.param(tensor.I32, indices)
	s = results(b.Apply(ir.RoPE, a, b.param(tensor.F32, 3, 32), table))
	for _, x := range []ir.Value{b.Apply(ir.RoPE, a, b.param(tensor.F32, 3, 16), table), b.param(tensor.F32, 3, 16)} {
		s.Updates = append(s.Updates, exec.Update{Param: fmt.Sprintf("in%d", b.params+1), Value: write(b.Graph, b.param(tensor.F32, 40, 16), x, index)})
	}
	return s
}

// casts turns every type into f32 and back, and takes rows of those that tables have.
func casts(b *builder) exec.Spec {
	var values []ir.Value
	x, ids := b.param(tensor.F32, 6, 64), b.param(tensor.I32, 3)
	for _, d := range slices.Sorted(maps.Keys(castable)) {
		in := b.param(d, 6, 64)
		values = append(values, b.Cast(in, tensor.F32))
		if !d.Quantized() {
			values = append(values, b.Cast(x, d))
		}
		if d.IsFloat() && !d.Quantized() {
			values = append(values, b.GatherRows(in, ids))
		}
	}
	return results(values...)
}

// pairs are functions of two integers.
func pairs(b *builder) exec.Spec {
	var values []ir.Value
	for _, d := range []tensor.DType{tensor.I32, tensor.U32} {
		x, y := b.param(d, 5, 7), b.param(d, 7)
		for _, fn := range []ir.BinaryFn{ir.Add, ir.Sub, ir.Mul, ir.Max, ir.Min} {
			values = append(values, b.Binary(fn, x, y))
		}
		for _, fn := range []ir.CompareFn{ir.Less, ir.LessEqual, ir.Equal, ir.NotEqual, ir.GreaterEqual, ir.Greater} {
			values = append(values, b.Compare(fn, x, y))
		}
	}
	return results(values...)
}

// moves are those of elements of all sizes.
func moves(b *builder) exec.Spec {
	var values []ir.Value
	for _, d := range []tensor.DType{tensor.U8, tensor.U16, tensor.F32, tensor.I64} {
		x := b.param(d, 33, 65)
		values = append(values, b.Transpose(x, 1, 0), b.Slice(x, 1, 3, 20), b.UpdateRows(x, b.param(d, 2, 65), b.param(tensor.I32, 1)))
	}
	return results(values...)
}
