package exec_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

var update = flag.Bool("update", false, "write the golden files of this package anew")

// trainingStep builds a LoRA training step of one feed-forward layer: forward, loss, gradients of the adapter, AdamW.
func trainingStep() (*ir.Graph, exec.Spec) {
	g := ir.New()
	n := g.Bound("rows", 16)
	param := func(name string, d tensor.DType, shape ...ir.Dim) ir.Value {
		return g.Param(name, ir.Type{DType: d, Shape: shape})
	}
	s := ir.Static
	ids, labels := param("ids", tensor.I32, n), param("labels", tensor.I32, n)
	key, rates := g.Param("key", ir.RandomKey), g.Param("rates", ir.AdamWRates)
	table, norm := param("embed", tensor.BF16, s(32), s(8)), param("norm", tensor.F32, s(8))
	gate, up, down := param("gate", tensor.BF16, s(24), s(8)), param("up", tensor.BF16, s(24), s(8)), param("down", tensor.BF16, s(8), s(24))
	a, b := param("lora_A", tensor.F32, s(2), s(24)), param("lora_B", tensor.F32, s(8), s(2))

	x := g.GatherRows(table, ids)
	h := g.RMSNorm(x, norm, 1e-6)
	h = g.GLU(g.Linear(h, gate, 0), g.Linear(h, up, 0), ir.SiLU)
	r := g.LoRADown(h, a, key, ir.DropoutAttr{P: 0.1, Stream: 1})
	y := g.Gemm([]ir.Product{{A: h, B: down, TB: true, Alpha: 1}, {A: r, B: b, TB: true, Alpha: 2}}, 0, x)
	loss := g.LinearCrossEntropy(g.RMSNorm(y, norm, 1e-6), table, labels)
	grads := g.Gradients(loss, []ir.Value{a, b}, ir.GradOptions{})

	spec := exec.Spec{Results: []exec.Result{{Name: "loss", Value: loss}}}
	for i, p := range []struct {
		name string
		v    ir.Value
	}{{"lora_A", a}, {"lora_B", b}} {
		m, v := g.Param(p.name+".m", g.Type(p.v)), g.Param(p.name+".v", g.Type(p.v))
		p2, m2, v2 := g.AdamW(p.v, m, v, grads[i], rates, g.Const(1, f32()), ir.AdamWAttr{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8})
		spec.Updates = append(spec.Updates, exec.Update{Param: p.name, Value: p2}, exec.Update{Param: p.name + ".m", Value: m2}, exec.Update{Param: p.name + ".v", Value: v2})
	}
	return g, spec
}

// TestTrainingStepText shows the effect of a change on launches and memory.
func TestTrainingStepText(t *testing.T) {
	g, spec := trainingStep()
	text := plan(t, g, spec).String()
	golden := filepath.Join("testdata", "training_step.golden")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, []byte(text), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), text)
	again, spec := trainingStep()
	assert.Equal(t, text, plan(t, again, spec).String(), "the same graph gives the same program")
}

// deep builds a network of segments, the gradients of its weight and the loss. With checkpoint > 0 that many segments
// are recomputed.
func deep(layers, checkpoint int) (*ir.Graph, exec.Spec) {
	g := ir.New()
	x, w, norm := g.Param("x", f32(32, 64)), g.Param("w", f32(64, 64)), g.Param("norm", f32(64))
	h := x
	for i := range layers {
		g.SetSegment(i + 1)
		y := g.RMSNorm(h, norm, 1e-3)
		y = g.GLU(g.Linear(y, w, 0), g.Linear(g.Unary(ir.Tanh, y), w, 0), ir.GELU)
		h = g.Add(h, g.Linear(y, w, 0))
	}
	g.SetSegment(0)
	loss := g.SumSquares(h)
	grads := g.Gradients(loss, []ir.Value{w, x}, ir.GradOptions{Checkpoint: checkpoint > 0, Segments: checkpoint})
	return g, results(loss, grads[0], grads[1])
}

// TestCheckpointTakesLessMemory: with segments computed again the arena of a
// deep network shrinks, and no bit of its gradients changes.
func TestCheckpointTakesLessMemory(t *testing.T) {
	dev := device(t)
	outputs := func(checkpoint int) (arena int, out [][]byte) {
		g, spec := deep(12, checkpoint)
		s := start(t, g, spec, dev)
		x := make([]float32, 32*64)
		for i := range x {
			x[i] = float32(i%13) / 20
		}
		w := make([]float32, 64*64)
		for i := range w {
			w[i] = float32(i%7-3) / 64
		}
		s.set("x", x...)
		s.set("w", w...)
		s.set("norm", x[:64]...)
		s.run()
		for _, r := range spec.Results {
			out = append(out, s.bytes(r.Name))
		}
		return s.exe.Program().Arena, out
	}
	kept, want := outputs(0)
	again, got := outputs(12)
	assert.Equal(t, want, got)
	last := kept
	for _, some := range []int{3, 6, 9} { // the first ones, whose values live longest
		arena, got := outputs(some)
		assert.Equal(t, want, got, "%d segments", some)
		assert.Less(t, arena, last, "%d segments", some)
		last = arena
	}
	assert.LessOrEqual(t, again, last)
	assert.Less(t, again, kept/2, "arena %d with checkpoints, %d without", again, kept)
	arena := func(checkpoint int) int { // where every composite is decomposed
		g, spec := deep(12, checkpoint)
		p, err := exec.Plan(g, spec, nil)
		require.NoError(t, err)
		return p.Arena
	}
	size := 32 * 64 * 4
	assert.Less(t, arena(12), arena(0)/2)
	assert.LessOrEqual(t, arena(12), (12+1+20)*size+4*64*64*4, "clones stay clones when they are decomposed")
	assert.LessOrEqual(t, again, (12+1+10)*size+4*64*64*4, "one value for each segment, those of one segment, gradients of w")
}

// TestArenaOfAChain: a chain needs two values at a time, or one where
// operations work in place.
func TestArenaOfAChain(t *testing.T) {
	const size = 1024 * 4
	g := ir.New()
	x := g.Param("x", f32(1024))
	for range 10 {
		x = g.Unary(ir.Tanh, x)
	}
	assert.Equal(t, size, plan(t, g, results(x)).Arena)

	g = ir.New()
	x = g.Param("x", f32(32, 32))
	for range 10 {
		x = g.Transpose(g.Unary(ir.Exp, x), 1, 0)
	}
	assert.Equal(t, 2*size, plan(t, g, results(x)).Arena)
	spec := results(x)
	spec.NoReuse = true
	assert.Equal(t, 19*size, plan(t, g, spec).Arena, "the oracle gives each its own")
}

func TestExecutableArguments(t *testing.T) {
	g := ir.New()
	x := g.Param("weight", ir.Type{DType: tensor.F32, Shape: ir.Shape{g.Bound("rows", 8), ir.Static(2)}})
	g.Param("unused", f32(4))
	dev := device(t)
	e, err := exec.Compile(g, results(g.Unary(ir.Exp, x)), dev)
	require.NoError(t, err)
	defer e.Close()
	assert.True(t, e.Uses("weight"))
	assert.False(t, e.Uses("unused"))
	small, err := dev.Alloc(60)
	require.NoError(t, err)
	defer small.Free()

	err = e.Bind("wieght", small)
	require.ErrorIs(t, err, exec.ErrArgument)
	assert.ErrorContains(t, err, `the program has no "wieght"`)
	assert.ErrorContains(t, err, `"weight"`)
	err = e.Bind("weight", small)
	require.ErrorIs(t, err, exec.ErrArgument)
	assert.ErrorContains(t, err, `"weight" has 60 bytes, expected 64 for f32[v1,2]`)
	_, err = e.Run(context.Background())
	require.ErrorIs(t, err, exec.ErrArgument)
	assert.ErrorContains(t, err, `"weight" f32[v1,2] is not bound`)

	for _, bad := range []int{0, 9, -1} {
		require.ErrorIs(t, e.SetDim("rows", bad), exec.ErrArgument)
	}
	assert.ErrorContains(t, e.SetDim("rows", 9), "rows = 9, expected 1 to 8")
	assert.ErrorContains(t, e.SetDim("cols", 1), `the program has no dimension "cols"`)
	before := e.Flops()
	require.NoError(t, e.SetDim("rows", 4))
	assert.Equal(t, before/2, e.Flops())
}

// TestLossesOfLosses: a product of two losses, each the factor of the other's
// gradient, cannot be taken from the passes that compute the gradients.
func TestLossesOfLosses(t *testing.T) {
	g := ir.New()
	x, w := g.Param("x", f32(3, 4)), g.Param("w", f32(5, 4))
	y := g.Param("y", ir.Type{DType: tensor.I32, Shape: ir.ShapeOf(3)})
	z := g.Param("z", ir.Type{DType: tensor.I32, Shape: ir.ShapeOf(3)})
	first, second := g.LinearCrossEntropy(x, w, y), g.LinearCrossEntropy(x, w, z)
	loss := g.Mul(first, second)
	grads := g.Gradients(loss, []ir.Value{x}, ir.GradOptions{})
	s := start(t, g, results(loss, grads[0]), device(t))
	data := make([]float32, 20)
	for i := range data {
		data[i] = float32(i%6)/3 - 0.7
	}
	s.set("x", data[:12]...)
	s.set("w", data...)
	s.setBytes("y", []byte{0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0})
	s.setBytes("z", []byte{4, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0})
	s.run()
	host := func(x []float32) *ir.Host {
		h := &ir.Host{}
		for _, v := range x {
			h.Data = append(h.Data, float64(v))
		}
		return h
	}
	args := map[string]*ir.Host{"x": host(data[:12]), "w": host(data), "y": {Data: []float64{0, 1, 2}}, "z": {Data: []float64{4, 3, 1}}}
	args["x"].Shape, args["w"].Shape, args["y"].Shape, args["z"].Shape = []int{3, 4}, []int{5, 4}, []int{3}, []int{3}
	want, err := g.Reference([]ir.Value{loss, grads[0]}, args, []int{0})
	require.NoError(t, err)
	assert.InEpsilon(t, want[0].Data[0], s.get("r0")[0], 1e-5)
	for i, v := range s.get("r1") {
		assert.InDelta(t, want[1].Data[i], v, 1e-5)
	}
}
