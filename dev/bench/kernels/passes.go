package kernels

import (
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/program"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// passes lists the operations that read and write more than they compute, on
// tensors that no cache holds.
func (s *suite) passes() []bench.Task {
	const elements = 16 << 20
	var tasks []bench.Task
	for _, p := range []struct {
		name string
		cols int // of a row, 0: whatever
		make func(p *pass)
	}{
		{"sum of rows: reading alone", 2048, func(p *pass) { p.result(p.x("x").Sum(1)) }},
		{"exp", 2048, func(p *pass) { p.result(p.x("x").Apply(ir.Exp)) }},
		{"softmax", 8192, func(p *pass) { p.result(p.x("x").Softmax()) }},
		{"softmax", 256, func(p *pass) { p.result(p.x("x").Softmax()) }},
		{"SiLU(gate)·up", 2048, func(p *pass) { p.result(p.x("gate").GLU(p.x("up"), ir.SiLU)) }},
		{"SiLU(gate)·up, backward", 2048, func(p *pass) { p.gradients(p.x("gate").GLU(p.x("up"), ir.SiLU), "gate", "up") }},
		{"RMSNorm", 2048, func(p *pass) { p.result(p.x("x").RMSNorm(p.row("w"), 1e-5)) }},
		{"RMSNorm, backward", 2048, func(p *pass) { p.gradients(p.x("x").RMSNorm(p.row("w"), 1e-5), "x") }},
		{"RoPE", 2048, func(p *pass) { p.result(p.x("x").RoPE(p.table(64), 64)) }},
		{"cross-entropy", 8192, func(p *pass) { p.result(p.x("x").CrossEntropy(p.labels())) }},
		{"cross-entropy, backward", 8192, func(p *pass) {
			p.result(p.g.Gradients(p.x("x").CrossEntropy(p.labels()), []graph.Tensor{p.x("x")}, false)...)
		}},
		{"dropout", 2048, func(p *pass) {
			p.result(p.x("x").Dropout(p.g.Of(p.g.IR().Param("key", ir.RandomKey)), ir.DropoutAttr{P: 0.1}))
		}},
		{"AdamW", 2048, func(p *pass) { p.adamW() }},
		{"f32 to bf16", 2048, func(p *pass) { p.result(p.x("x").Cast(tensor.BF16)) }},
		{"bf16 to f32", 2048, func(p *pass) { p.result(p.typed("x", tensor.BF16).Cast(tensor.F32)) }},
		{"f16 to f32", 2048, func(p *pass) { p.result(p.typed("x", tensor.F16).Cast(tensor.F32)) }},
	} {
		rows := s.shrunk(elements/p.cols, 1)
		row := &bench.Row{Group: "Bound by the memory", Program: ours, Name: p.name, Input: fmt.Sprintf("%d rows of %d", rows, p.cols)}
		tasks = append(tasks, s.machine.Task(row, backend.F32, func() program.Spec {
			x := &pass{g: graph.New(), rows: rows, cols: p.cols}
			p.make(x)
			return x.spec
		}))
	}
	return tasks
}

// pass is the graph of one operation under construction.
type pass struct {
	g          *graph.Graph
	rows, cols int
	spec       program.Spec
	params     map[string]graph.Tensor
}

func (p *pass) x(name string) graph.Tensor { return p.typed(name, tensor.F32) }

// typed returns the param of that name and type, with all rows.
func (p *pass) typed(name string, d tensor.DType) graph.Tensor {
	return p.param(name, d, p.rows, p.cols)
}

func (p *pass) row(name string) graph.Tensor { return p.param(name, tensor.F32, p.cols) }

func (p *pass) param(name string, d tensor.DType, shape ...int) graph.Tensor {
	if t, ok := p.params[name]; ok {
		return t
	}
	if p.params == nil {
		p.params = map[string]graph.Tensor{}
	}
	t := p.g.Param(name, d, ir.ShapeOf(shape...)...)
	p.params[name] = t
	return t
}

func (p *pass) result(ts ...graph.Tensor) { p.spec.Graph, p.spec.Results = p.g, ts }

// gradients adds the gradients of y for the named params. The gradient of y is itself a param.
func (p *pass) gradients(y graph.Tensor, names ...string) {
	wrt := make([]graph.Tensor, len(names))
	for i, name := range names {
		wrt[i] = p.x(name)
	}
	p.result(program.Gradients(y, p.param("dy", tensor.F32, y.Type().Shape.Resolve(nil)...), wrt)...)
}

// words sets the contents of a param of integers.
func (p *pass) words(name string, n int, of func(i int) int32) graph.Tensor {
	w := make([]int32, n)
	for i := range w {
		w[i] = of(i)
	}
	if p.spec.Words == nil {
		p.spec.Words = map[string][]int32{}
	}
	p.spec.Words[name] = w
	return p.param(name, tensor.I32, n)
}

func (p *pass) labels() graph.Tensor {
	return p.words("labels", p.rows, func(i int) int32 { return int32(i % p.cols) })
}

// table returns a param with the rotary angles for heads of size dim.
func (p *pass) table(dim int) graph.Tensor { return p.param("table", tensor.F32, p.rows, dim) }

// adamW updates a parameter and its moments in place.
func (p *pass) adamW() {
	rates, scale := p.g.Of(p.g.IR().Param("rates", ir.AdamWRates)), p.param("scale", tensor.F32)
	w, m, v := p.x("w").AdamW(p.x("m"), p.x("v"), p.x("g"), rates, scale, ir.AdamWAttr{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8})
	p.spec.Graph, p.spec.Updates = p.g, map[string]graph.Tensor{"w": w, "m": m, "v": v}
}
