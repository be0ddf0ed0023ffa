package exec_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/graph/conformance"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// builder grows a random graph of matrices whose operations fit each other.
type builder struct {
	r      *rapid.T
	g      *ir.Graph
	n      ir.Dim
	values []ir.Value // f32 matrices
	params map[string]*ir.Host
	key    ir.Value
}

func newBuilder(r *rapid.T) *builder {
	b := &builder{r: r, g: ir.New(), params: map[string]*ir.Host{}}
	b.n = b.g.Bound("n", 5)
	b.param(b.n, ir.Static(6))
	b.param(b.n, ir.Static(4))
	b.key = b.g.Param("key", ir.RandomKey)
	return b
}

// dims are the run-time values of the bounded dimensions.
var randomDims = []int{0, 3}

// param adds a param of small numbers.
func (b *builder) param(shape ...ir.Dim) ir.Value {
	name := fmt.Sprintf("p%d", len(b.params))
	v := b.g.Param(name, ir.Type{DType: tensor.F32, Shape: shape})
	h := ir.NewHost(b.g.Type(v), randomDims)
	for i := range h.Data {
		h.Data[i] = float64(float32(math.Sin(float64(7*len(b.params)+i)*1.7) * 0.8))
	}
	b.params[name] = h
	if len(shape) == 2 {
		b.values = append(b.values, v)
	}
	return v
}

func (b *builder) any() ir.Value { return rapid.SampledFrom(b.values).Draw(b.r, "value") }

// like returns another value of the shape of x, or x itself if there is none.
func (b *builder) like(x ir.Value) ir.Value {
	var same []ir.Value
	for _, v := range b.values {
		if b.g.Type(v).Equal(b.g.Type(x)) {
			same = append(same, v)
		}
	}
	return rapid.SampledFrom(same).Draw(b.r, "like")
}

func (b *builder) bool(label string) bool { return rapid.Bool().Draw(b.r, label) }

// step adds one operation, and whatever it needs.
func (b *builder) step() {
	g, x := b.g, b.any()
	shape := g.Type(x).Shape
	rows, cols := shape[0], shape[1]
	var y ir.Value
	switch kind := rapid.IntRange(0, 15).Draw(b.r, "kind"); kind {
	case 0:
		y = g.Unary(rapid.SampledFrom([]ir.UnaryFn{ir.Tanh, ir.Sigmoid, ir.Neg, ir.Sin, ir.Abs}).Draw(b.r, "fn"), x)
	case 1, 2:
		fn := rapid.SampledFrom([]ir.BinaryFn{ir.Add, ir.Sub, ir.Mul}).Draw(b.r, "fn")
		y = g.Binary(fn, x, b.like(x))
	case 3:
		row := b.param(cols)
		if y = g.Add(x, row); b.bool("row first") {
			y = g.Mul(row, x)
		}
	case 4:
		y = g.Scale(x, rapid.SampledFrom([]float64{-1, 0.5, 1, 2}).Draw(b.r, "scale"))
	case 5, 6, 7:
		y = b.product(x, rows, cols)
	case 8:
		y = g.Transpose(x, 1, 0)
		if b.bool("twice") {
			y = g.Transpose(y, 1, 0)
		}
	case 9:
		if cols.Var != 0 {
			return
		}
		y = g.RMSNorm(x, b.param(cols), 1e-2)
	case 10:
		y = g.Softmax(x)
	case 11:
		y = g.GLU(x, b.like(x), rapid.SampledFrom([]ir.Activation{ir.SiLU, ir.GELU, ir.GELUTanh}).Draw(b.r, "act"))
	case 12:
		if cols.Var != 0 || cols.N < 2 {
			return
		}
		y = g.Concat(1, g.Slice(x, 1, 1, cols.N), g.Slice(x, 1, 0, 1))
	case 13:
		sum := g.Reduce(ir.ReduceSum, x, 1)
		y = g.Sub(x, g.Scale(g.Reshape(sum, ir.Shape{rows, ir.Static(1)}), 0.125))
	case 14:
		y = g.Dropout(x, b.key, ir.DropoutAttr{P: 0.25, Stream: uint32(rapid.IntRange(0, 2).Draw(b.r, "stream"))})
	case 15: // written out by hand
		y = g.Mul(g.Mul(x, g.Unary(ir.Sigmoid, x)), b.like(x))
	}
	b.values = append(b.values, y)
}

// product multiplies x by a weight, and may add a bias or another value.
func (b *builder) product(x ir.Value, rows, cols ir.Dim) ir.Value {
	g, out := b.g, ir.Static(rapid.SampledFrom([]int{1, 4, 6}).Draw(b.r, "columns"))
	p := ir.Product{A: x, TA: b.bool("transpose x"), TB: b.bool("transpose w"), Alpha: 0.5}
	inner := cols
	if p.TA {
		inner, rows = rows, cols
	}
	if p.TB {
		p.B = b.param(out, inner)
	} else {
		p.B = b.param(inner, out)
	}
	var bias, c ir.Value
	if b.bool("bias") {
		bias = b.param(out)
	}
	if b.bool("addend") {
		c = b.param(rows, out)
	}
	return g.Gemm([]ir.Product{p}, bias, c)
}

// spec selects some values as results, and updates of some params.
func (b *builder) spec() exec.Spec {
	var s exec.Spec
	last := b.values[len(b.values)-1]
	s.Results = append(s.Results, exec.Result{Name: "r0", Value: last})
	for i := range rapid.IntRange(0, 2).Draw(b.r, "results") {
		s.Results = append(s.Results, exec.Result{Name: fmt.Sprintf("r%d", i+1), Value: b.any()})
	}
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range b.params {
			if !yield(name) {
				return
			}
		}
	}) {
		if v, _ := b.g.Lookup(name); b.g.Type(v).Rank() == 2 && b.bool("update") {
			s.Updates = append(s.Updates, exec.Update{Param: name, Value: b.like(v), Accumulate: b.bool("accumulate")})
		}
	}
	if b.bool("gradients") {
		var wrt []ir.Value
		for v := range b.g.Nodes {
			if b.g.Nodes[v].Op == ir.Param && b.g.Nodes[v].Outs[0].DType == tensor.F32 && b.reads(last, ir.Value(v)) {
				wrt = append(wrt, ir.Value(v))
			}
		}
		for i, v := range b.g.Gradients(b.g.SumSquares(last), wrt, ir.GradOptions{Checkpoint: b.bool("checkpoint")}) {
			s.Results = append(s.Results, exec.Result{Name: fmt.Sprintf("g%d", i), Value: v})
		}
	}
	return s
}

func (b *builder) reads(v, param ir.Value) bool {
	return v == param || slices.ContainsFunc(b.g.Node(v).In, func(x ir.Value) bool { return b.reads(x, param) })
}

// outcome runs the graph and gives what each written argument holds.
func (b *builder) outcome(t testing.TB, spec exec.Spec, dev backend.Device) map[string][]byte {
	s := start(t, b.g, spec, dev)
	require.NoError(t, s.exe.SetDim("n", randomDims[1]))
	for name, h := range b.params {
		x := make([]float32, len(h.Data))
		for i, v := range h.Data {
			x[i] = float32(v)
		}
		s.set(name, x...)
	}
	if s.buffers["key"] != nil {
		s.setBytes("key", []byte{1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0})
	}
	s.run()
	out := map[string][]byte{}
	for _, a := range s.exe.Program().Args {
		if a.Written {
			out[a.Name] = s.bytes(a.Name)[:a.Type.Bytes(randomDims)]
		}
	}
	return out
}

// primitive is a device that claims no composite.
type primitive struct{ backend.Device }

func (primitive) Supports(ir.Op, any, []ir.Type) bool { return false }

// TestRandomGraphs: reused memory, the number of workers, delays and poison change no bit of the results. Rewrites and
// decompositions change only rounding, and all agree with the reference.
func TestRandomGraphs(t *testing.T) {
	dev := device(t)
	single, err := cpu.Open(backend.Options{Threads: 1})
	require.NoError(t, err)
	wild := conformance.Chaos(single, 9)
	t.Cleanup(func() { require.NoError(t, wild.Close()) })
	rapid.Check(t, func(r *rapid.T) {
		b := newBuilder(r)
		for range rapid.IntRange(1, 14).Draw(r, "steps") {
			b.g.SetSegment(rapid.IntRange(0, 2).Draw(r, "segment"))
			b.step()
		}
		b.g.SetSegment(0)
		spec := b.spec()
		require.NoError(t, b.g.Err())
		with := func(noReuse, noFuse bool) exec.Spec {
			s := spec
			s.NoReuse, s.NoFuse = noReuse, noFuse
			return s
		}
		fused := b.outcome(t, with(true, false), dev)
		require.Equal(r, fused, b.outcome(t, with(false, false), dev), "memory is reused")
		require.Equal(r, fused, b.outcome(t, with(false, false), wild), "one worker, poison")
		raw := b.outcome(t, with(true, true), dev)
		require.Equal(r, raw, b.outcome(t, with(false, true), dev), "memory is reused, nothing fused")

		args := map[string]*ir.Host{"key": {DType: tensor.U32, Shape: []int{3}, Data: []float64{1, 2, 3}}}
		for name, h := range b.params {
			args[name] = h
		}
		want := map[string]ir.Value{}
		for _, x := range spec.Results {
			want[x.Name] = x.Value
		}
		for _, x := range spec.Updates {
			want[x.Param] = x.Value
			if v, _ := b.g.Lookup(x.Param); x.Accumulate {
				want[x.Param] = b.g.Add(v, x.Value)
			}
		}
		decomposed := b.outcome(t, with(false, false), primitive{dev})
		for name, v := range want {
			h, err := b.g.Reference([]ir.Value{v}, args, randomDims)
			require.NoError(r, err)
			for how, got := range map[string][]byte{"fused": fused[name], "raw": raw[name], "decomposed": decomposed[name]} {
				near(r, h[0].Data, got, "%s, %s", name, how)
			}
		}
	})
}

// near requires float32 bytes to be the reference's numbers, relative to the
// largest.
func near(r *rapid.T, want []float64, got []byte, format string, args ...any) {
	x := make([]float32, len(want))
	require.NoError(r, tensor.ToFloat32(x, got, tensor.F32))
	scale := 1e-3
	for _, w := range want {
		scale = max(scale, math.Abs(w))
	}
	for i, w := range want {
		if math.Abs(float64(x[i])-w) > 2e-4*scale {
			r.Fatalf("%s: element %d is %v, expected %v", fmt.Sprintf(format, args...), i, x[i], w)
		}
	}
}
