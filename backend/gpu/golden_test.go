package gpu

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/conformance"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

var update = flag.Bool("update", false, "write testdata again")

// The limits of an H100.
var h100 = Limits{Threads: 1024, Shared: 227 << 10}

// TestLaunches: what devices launch for some programs does not change unseen.
// go test ./backend/gpu -update writes testdata.
func TestLaunches(t *testing.T) {
	for file, target := range map[string]Target{
		"h100_f32.txt": {Precision: backend.F32, Limits: h100, Sizes: DefaultSizes()}, "h100_bf16.txt": {Precision: backend.BF16, Limits: h100, Sizes: DefaultSizes()},
		"apple_f32.txt": MetalTarget(backend.F32, 1024), "apple_bf16.txt": MetalTarget(backend.BF16, 1024),
	} {
		t.Run(file, func(t *testing.T) {
			var got strings.Builder
			for _, p := range goldens(t) {
				describe(t, &got, p, target)
			}
			name := filepath.Join("testdata", file)
			if *update {
				require.NoError(t, os.MkdirAll("testdata", 0o755))
				require.NoError(t, os.WriteFile(name, []byte(got.String()), 0o644))
			}
			want, err := os.ReadFile(name)
			require.NoError(t, err)
			require.Equal(t, string(want), got.String())
		})
	}
}

// describe writes what a program launches, or why it cannot.
func describe(t *testing.T, w *strings.Builder, p conformance.Program, target Target) {
	t.Helper()
	fmt.Fprintf(w, "%s\n", p.Name)
	plan, err := New(p.Program, target)
	if err != nil {
		require.ErrorIs(t, err, backend.ErrUnsupported)
		fmt.Fprintf(w, "  %v\n", err)
		return
	}
	fmt.Fprintf(w, "  scratch %d\n", plan.Scratch)
	for _, l := range fill(plan, len(p.Args), p.Dims, 0) {
		x := l.Launch
		fmt.Fprintf(w, "  %s %s grid %v block %v shared %d\n   ", l.File, l.Name, x.Grid, x.Block, x.Shared)
		for _, a := range l.args {
			fmt.Fprintf(w, " %s=%s", a.Name, valueOf(p, a))
		}
		fmt.Fprintln(w)
	}
}

// valueOf is an argument as text: pointers as what fill makes them of.
func valueOf(p conformance.Program, a Arg) string {
	at, off := a.Value>>40, a.Value&(1<<40-1)
	switch {
	case a.Kind == FloatKind:
		return fmt.Sprintf("%#08x", a.Value)
	case a.Kind != PointerKind || a.Value == 0:
		return fmt.Sprint(a.Value)
	case at < 4:
		return fmt.Sprintf("%s+%d", [...]string{"", "arena", "scratch", "trap"}[at], off)
	}
	return fmt.Sprintf("%s+%d", p.Args[at-4].Name, off)
}

// goldens are programs of what models are made of.
func goldens(t *testing.T) (list []conformance.Program) {
	t.Helper()
	add := func(name string, build func(b *builder) exec.Spec) { list = append(list, program(t, name, build)) }
	for _, rows := range []int{1, 70, 1500} {
		add(fmt.Sprintf("%d rows of a product with an adapter", rows), func(b *builder) exec.Spec {
			x, w, a := b.param(tensor.F32, rows, 512), b.param(tensor.BF16, 1500, 512), b.param(tensor.F32, 16, 512)
			h := b.LoRADown(x, a, b.Param("key", ir.RandomKey), ir.DropoutAttr{P: 0.1, Stream: 3})
			return results(b.Add(b.Linear(x, w, 0), b.Linear(h, b.param(tensor.F32, 1500, 16), 0)))
		})
	}
	for _, rows := range []int{2, 20, 1500} {
		add(fmt.Sprintf("%d rows of a product stored as bf16", rows), func(b *builder) exec.Spec {
			x, w, c := b.param(tensor.F32, rows, 512), b.param(tensor.BF16, 1500, 512), b.param(tensor.F32, rows, 1500)
			return narrowed(results(b.Gemm([]ir.Product{{A: x, B: w, TB: true, Alpha: 1}}, 0, c)))
		})
	}
	for _, rows := range []int{1, 20, 1500} {
		add(fmt.Sprintf("%d rows of products with weights in 8-bit floats", rows), func(b *builder) exec.Spec {
			x := b.param(tensor.F32, rows, 512)
			float8 := func(n int) ir.Value {
				return b.Mul(b.Cast(b.param(tensor.F8E4M3, n, 512), tensor.F32), b.param(tensor.F32, n, 1))
			}
			return results(b.Linear(x, float8(1504), 0), b.Linear(x, float8(70), 0), b.Linear(x, b.Cast(b.param(tensor.F8E4M3, 96, 512), tensor.F32), 0))
		})
	}
	for _, rows := range []int{1, 20, 1500} {
		add(fmt.Sprintf("%d rows of products with 8-bit floats in blocks", rows), func(b *builder) exec.Spec {
			x, block := b.param(tensor.F32, rows, 512), ir.DequantizeAttr{Rows: 32, Columns: 128}
			float8 := func(n int) ir.Value {
				return b.Dequantize(b.param(tensor.F8E4M3, n, 512), b.param(tensor.F32, (n+31)/32, 4), block)
			}
			return results(b.Linear(x, float8(1504), 0), b.Linear(x, float8(70), 0))
		})
	}
	add("three linears with adapters, backward", func(b *builder) exec.Spec {
		var ps []ir.Product
		for _, rank := range []int{8, 16, 24} {
			ps = append(ps, ir.Product{A: b.param(tensor.BF16, 1536, 256), B: b.param(tensor.BF16, 256, 1536), Alpha: 1},
				ir.Product{A: b.param(tensor.F32, 1536, rank), B: b.param(tensor.F32, rank, 1536), Alpha: 0.5})
		}
		return results(b.Gemm(ps, 0, 0))
	})
	add("narrow products of the same matrices", func(b *builder) exec.Spec {
		x, narrow := b.param(tensor.BF16, 1024, 2048), func(rows, n int) ir.Value { return b.param(tensor.F32, rows, n) }
		product := func(x, y ir.Value, ta, tb bool) ir.Value {
			return b.Gemm([]ir.Product{{A: x, B: y, TA: ta, TB: tb, Alpha: 0.5}}, 0, 0)
		}
		down := []ir.Value{product(x, narrow(16, 2048), false, true), product(x, narrow(8, 2048), false, true), product(x, narrow(48, 2048), false, true)}
		grads := []ir.Value{product(narrow(1024, 16), x, true, false), product(narrow(1024, 8), x, true, false)}
		dy, dz := b.param(tensor.BF16, 1024, 512), b.param(tensor.BF16, 1024, 264)
		c := narrow(512, 16)
		left := b.Gemm([]ir.Product{{A: dy, B: narrow(1024, 16), TA: true, Alpha: 1}}, 0, c)
		back := []ir.Value{left, product(dz, narrow(264, 8), false, false), product(dy, narrow(512, 16), false, false), product(dz, narrow(1024, 8), true, false)}
		return results(slices.Concat(down, grads, back)...)
	})
	add("two rows of products of the same x", func(b *builder) exec.Spec {
		x := b.param(tensor.F32, 2, 512)
		inner := b.RMSNorm(x, b.Cast(b.param(tensor.BF16, 512), tensor.F32), 1e-6)
		adapted := func(x ir.Value, n int) ir.Value {
			h := b.Linear(x, b.param(tensor.F32, 8, 512), 0)
			return b.Gemm([]ir.Product{{A: x, B: b.param(tensor.BF16, n, 512), TB: true, Alpha: 1}, {A: h, B: b.param(tensor.F32, n, 8), TB: true, Alpha: 2}}, 0, 0)
		}
		return results(adapted(x, 96), adapted(x, 32), adapted(x, 32), b.GLU(adapted(inner, 250), adapted(inner, 250), ir.GELU))
	})
	for _, rows := range []int{5, 20, 300} {
		add(fmt.Sprintf("%d rows of layers with two adapters", rows), func(b *builder) exec.Spec { return adaptersSpec(b, rows) })
	}
	for _, size := range []int{64, 128} {
		for _, queries := range []int{1, 200} {
			add(fmt.Sprintf("attention of %d queries, heads of %d", queries, size), func(b *builder) exec.Spec { return attentionSpec(b, size, 4, queries) })
		}
	}
	add("a layer's rest", func(b *builder) exec.Spec {
		x, w := b.param(tensor.F32, 9, 512), b.param(tensor.F32, 512)
		y := b.RMSNorm(x, w, 1e-6)
		return results(b.GLU(y, b.Unary(ir.Tanh, x), ir.SiLU), b.Transpose(b.param(tensor.F16, 40, 80), 1, 0), b.GatherRows(b.param(tensor.BF16, 100, 512), b.param(tensor.I32, 9)))
	})
	add("gradients added to their sums", func(b *builder) (s exec.Spec) {
		x, h, w := b.param(tensor.F32, 70, 2048), b.param(tensor.F32, 70, 16), b.Cast(b.param(tensor.BF16, 2048), tensor.F32)
		dy := b.Mul(x, b.RMSNorm(x, w, 1e-6))
		s = results(b.Add(x, b.Apply(ir.RMSNormGrad, ir.NormAttr{Eps: 1e-6}, dy, x, w)))
		for _, grad := range []ir.Value{b.MatMul(h, x, true, false), b.Apply(ir.LoRADownGrad, ir.DropoutAttr{P: 0.1}, h, x, b.Param("key", ir.RandomKey))} {
			s.Updates = append(s.Updates, exec.Update{Param: fmt.Sprintf("in%d", b.params+1), Value: b.Add(b.param(tensor.F32, 16, 2048), grad)})
		}
		return s
	})
	add("the loss of a head", func(b *builder) exec.Spec {
		d := b.Apply(ir.LinearCrossEntropyGrad, nil, b.param(tensor.F32, 300, 64), b.param(tensor.BF16, 1000, 64), b.param(tensor.I32, 300), b.param(tensor.F32))
		return results(d, b.Out(d, 1))
	})
	for _, v := range variants(t) {
		if v.Name == "steps in place" || v.Name == "a batch of 20 rows" {
			list = append(list, v)
		}
	}
	return list
}

// TestLimits: what does not fit a device is refused, with both numbers.
func TestLimits(t *testing.T) {
	p := program(t, "attention", func(b *builder) exec.Spec { return attentionSpec(b, 128, 1, 70) })
	_, err := New(p.Program, Target{Precision: backend.BF16, Limits: Limits{Shared: 20 << 10}, Sizes: DefaultSizes()})
	require.ErrorIs(t, err, backend.ErrUnsupported)
	require.EqualError(t, err, "Attention: unsupported operation: kernel attention_bf16_128 has blocks of 52224 bytes of shared memory, the device of at most 20480")
	_, err = New(p.Program, Target{Limits: Limits{Threads: 64}, Sizes: DefaultSizes()})
	require.ErrorContains(t, err, "has blocks of 256 threads, the device of at most 64")
}

// TestReports: kernels report by number what is wrong; the plan says it in words.
func TestReports(t *testing.T) {
	p := program(t, "rows", func(b *builder) exec.Spec {
		return results(b.GatherRows(b.param(tensor.F32, 10, 4), b.param(tensor.I32, 3)))
	})
	plan, err := New(p.Program, Target{Sizes: DefaultSizes()})
	require.NoError(t, err)
	require.EqualError(t, plan.wrong(&Run{Dims: p.Dims}, 0, 2, 17), "GatherRows: id 17 at 2, the table has 10 rows")
	require.EqualError(t, plan.wrong(&Run{Dims: p.Dims}, 1, 2, 17), "launch 1 reports 17 at 2")
}

// TestSupported: operands stored in a type that kernels do not take, and operations
// without kernels, are refused before they are planned.
func TestSupported(t *testing.T) {
	narrow := program(t, "narrow", func(b *builder) exec.Spec {
		s := results(b.SumSquares(b.param(tensor.F32, 4)))
		s.Store, s.StoreAll = tensor.BF16, true
		s.Stores = func(ir.Op, any, []ir.Type, ir.Place, tensor.DType) bool { return true }
		return s
	})
	_, err := New(narrow.Program, Target{Sizes: DefaultSizes()})
	require.ErrorIs(t, err, backend.ErrUnsupported)
	require.ErrorContains(t, err, "is stored in another type than it is computed in")
	other := &ir.Program{Bounds: make([]ir.Bound, 1), Launches: []ir.Launch{{Op: ir.Param}}}
	require.EqualError(t, Supported(other), "unsupported operation: Param")
	require.False(t, Supports(ir.Param, nil, nil))
}

// TestFillAllocatesNothing, whatever is launched.
func TestFillAllocatesNothing(t *testing.T) {
	for _, p := range goldens(t) {
		plan, err := New(p.Program, Target{Precision: backend.BF16, Limits: h100, Sizes: DefaultSizes()})
		require.NoError(t, err)
		plan.Bind(make([]Launch, len(plan.Kernels)))
		r := &Run{Args: make([]Pointer, len(p.Args)), Dims: p.Dims}
		require.Zero(t, testing.AllocsPerRun(5, func() {
			for i := range plan.Len() {
				plan.Fill(i, r)
			}
		}), p.Name)
	}
}

// TestRowsChooseKernels: of the kernels of a product those are planned that the
// number of rows can need.
func TestRowsChooseKernels(t *testing.T) {
	for name, c := range map[string]struct {
		rows ir.Dim
		want []string
	}{
		"one":      {ir.Static(1), []string{"gemv_1"}},
		"three":    {ir.Static(3), []string{"gemv_4"}},
		"eight":    {ir.Static(8), []string{"gemv_8"}},
		"nine":     {ir.Static(9), []string{"gemm_f32_f32"}},
		"up to 5":  {ir.Dim{N: 1, Var: 1}, []string{"gemv_1", "gemv_2", "gemv_4", "gemv_8"}},
		"up to 10": {ir.Dim{N: 2, Var: 1}, []string{"gemv_1", "gemv_2", "gemv_4", "gemv_8", "gemm_f32_f32"}},
	} {
		p := program(t, name, func(b *builder) exec.Spec {
			b.Bound("n", 5)
			x := b.Param("x", ir.Type{DType: tensor.F32, Shape: ir.Shape{c.rows, ir.Static(32)}})
			return results(b.Linear(x, b.param(tensor.F32, 4, 32), 0))
		})
		plan, err := New(p.Program, Target{Sizes: DefaultSizes()})
		require.NoError(t, err, name)
		var got []string
		for _, k := range plan.Kernels {
			got = append(got, k.Name)
		}
		require.Equal(t, c.want, got, name)
	}
}

// adaptersSpec has two layers of one input, of which each row uses one of two adapters, with their GLU, and a third one
// whose result is added to the input.
func adaptersSpec(b *builder, rows int) exec.Spec {
	x, scale := b.Unary(ir.Neg, b.param(tensor.F32, rows, 512)), b.param(tensor.F32, 2)
	layer := func(x ir.Value, k, n int) ir.Value {
		p := ir.RowsProduct{X: x, Index: b.param(tensor.I32, rows), Weights: []ir.Value{b.param(tensor.F32, 4, k), b.param(tensor.BF16, 16, k)}, TB: true}
		h := b.RowsGemm(p)
		y := b.Gemm([]ir.Product{{A: x, B: b.param(tensor.BF16, n, k), TB: true, Alpha: 1}}, 0, 0)
		return b.RowsGemm(ir.RowsProduct{X: h, Index: p.Index, Weights: []ir.Value{b.param(tensor.F32, n, 4), b.param(tensor.BF16, n, 16)}, TB: true, Scale: scale, C: y})
	}
	return results(b.Add(layer(b.GLU(layer(x, 512, 256), layer(x, 512, 256), ir.SiLU), 256, 512), x))
}
