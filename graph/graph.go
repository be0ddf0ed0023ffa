// Package graph builds lazy tensors: formulas that are compiled or evaluated later. Shapes and element types are known
// when a tensor is created; nothing runs before [Program.Compile] or an evaluation. Operations do not return errors.
// The graph keeps the first one, with the file and line of the caller, and compiling returns it, so that model code
// reads like formulas.
//
// An axis has a fixed size, or a multiple of a dimension whose size is set for each run ([Graph.Bound]). Some
// operations work on rows by index: [Tensor.Gather] reads them from a table, [Tensor.ScatterRows] writes them into one,
// also to concatenate tensors whose axes are bounded by different dimensions, and [Tensor.RowsGemm] multiplies each row
// by its own matrix.
//
// A formula starts with host tensors, which need no names, and is evaluated by an [Evaluator] on one device:
//
//	e := graph.NewEvaluator(dev, graph.EvaluatorOptions{})
//	defer e.Close()
//	g := graph.New()
//	x, w := g.Value(inputs), g.Value(weight)      // read when they are needed
//	y := x.MatMulT(w).Slice(0, -4, graph.End)     // leading axes are rows
//	out, err := y.Eval(ctx, e)
//
// The evaluator caches compiled programs by formula, not by graph: a loop may build a new graph each time, with other
// data, without compiling again. [Evaluator.EvalAsync] returns before the device starts. Gradients are tensors of the
// same graph, and [AdamW] trains values with them.
//
// Long-running programs keep their state on the device instead: params by name, results and updates, described by
// [Graph.Program] and compiled once.
package graph

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// Graph holds the tensors of one computation.
type Graph struct {
	ir     *ir.Graph
	values map[ir.Value]tensor.Tensor // host data of values
	known  map[identity]ir.Value      // values by their host data
	last   atomic.Pointer[memo]       // the last evaluation
}

// Tensor is a value of a graph: small, comparable, and never freed. The zero Tensor means an absent operand.
type Tensor struct {
	g *Graph
	v ir.Value
}

// New returns an empty graph.
func New() *Graph { return &Graph{ir: ir.New()} }

// IR returns the graph of nodes that the tensors refer to, for operations that Tensor does not
// have.
func (g *Graph) IR() *ir.Graph { return g.ir }

// Err returns the first error in building the graph, or nil.
func (g *Graph) Err() error { return g.ir.Err() }

// Fail records err as the error of the graph, with file and line of the caller, unless it already
// has one. Use it in functions that build formulas and find an invalid argument. It returns a
// Tensor without a value, to return in place of a result.
func (g *Graph) Fail(err error) Tensor { return Tensor{g, g.ir.Fail(err)} }

// Bound returns a dimension called name whose size is set for each run, from 1 to max. Use it in
// the shapes of params, for example for the number of tokens of a batch. Memory is planned for the
// maximum.
func (g *Graph) Bound(name string, max int) ir.Dim { return g.ir.Bound(name, max) }

// Param adds an input called name, or returns the existing one.
func (g *Graph) Param(name string, d tensor.DType, shape ...ir.Dim) Tensor {
	if v, ok := g.ir.Lookup(name); ok {
		if _, ok = g.values[v]; ok {
			return g.Fail(fmt.Errorf("param %q: a value of the graph has this name", name))
		}
	}
	return g.Of(g.ir.Param(name, ir.Type{DType: d, Shape: shape}))
}

// Const returns an f32 tensor filled with x.
func (g *Graph) Const(x float64, shape ...ir.Dim) Tensor {
	return g.Of(g.ir.Const(x, ir.Type{DType: tensor.F32, Shape: shape}))
}

// Of returns the Tensor of a node of [Graph.IR], the inverse of [Tensor.Value]. Both are needed
// only to add nodes for which Tensor has no method.
func (g *Graph) Of(v ir.Value) Tensor { return Tensor{g, v} }

// value returns the node of t, which must belong to g or be absent.
func (g *Graph) value(t Tensor) ir.Value {
	if t.g != nil && t.g != g {
		return g.ir.Fail(errors.New("an operand belongs to another graph"))
	}
	return t.v
}

// SetSegment assigns later nodes to segment s of the forward pass, for activation checkpointing; 0 is none.
func (g *Graph) SetSegment(s int) { g.ir.SetSegment(s) }

// Gradients returns the gradient of the scalar loss with respect to each of wrt. With checkpoint, values inside a
// segment are recomputed instead of kept.
func (g *Graph) Gradients(loss Tensor, wrt []Tensor, checkpoint bool) []Tensor {
	return g.GradientsWith(loss, wrt, ir.GradOptions{Checkpoint: checkpoint})
}

// GradientsWith returns gradients with all options, such as checkpointing of some segments only.
func (g *Graph) GradientsWith(loss Tensor, wrt []Tensor, o ir.GradOptions) []Tensor {
	vs := make([]ir.Value, len(wrt))
	for i, t := range wrt {
		vs[i] = g.value(t)
	}
	out := make([]Tensor, len(wrt))
	for i, v := range g.ir.Gradients(g.value(loss), vs, o) {
		out[i] = g.Of(v)
	}
	return out
}

// Program describes a program over a graph: results by name, and params that are updated at the end of a run.
type Program struct {
	g    *Graph
	spec exec.Spec
}

// Program starts the description of a program over the graph.
func (g *Graph) Program() *Program { return &Program{g: g} }

// Result adds t as a result called name.
func (p *Program) Result(name string, t Tensor) *Program {
	p.spec.Results = append(p.spec.Results, exec.Result{Name: name, Value: p.g.value(t)})
	return p
}

// Update makes t the new contents of the param called name at the end of a run.
func (p *Program) Update(name string, t Tensor) *Program {
	p.spec.Updates = append(p.spec.Updates, exec.Update{Param: name, Value: p.g.value(t)})
	return p
}

// Accumulate adds t to the contents of the param called name at the end of a run. t is computed completely first, so
// that the param holds the left fold of the values of the runs.
func (p *Program) Accumulate(name string, t Tensor) *Program {
	p.spec.Updates = append(p.spec.Updates, exec.Update{Param: name, Value: p.g.value(t), Accumulate: true})
	return p
}

// StoreBF16 allows the program to store activations, and tables whose rows are updated, as
// bfloat16, if dev was opened with that precision. Computations stay in f32. Sums may remain in
// f32 if this adds at most 1/spare to the memory of activations; zero allows no additional memory.
func (p *Program) StoreBF16(dev backend.Device, spare int) *Program {
	p.spec.Store, p.spec.Stores, p.spec.Spare = tensor.BF16, dev.Stores, spare
	return p
}

// FixedSizes declares that the sizes of activations are fixed, as those of images, and not bounded. StoreBF16 then
// applies to all computed values. The program must compute no gradients of parameters.
func (p *Program) FixedSizes() *Program {
	p.spec.FixedSizes = true
	return p
}

// FixSumOrder sets whether sums are computed in the order of the formulas. Otherwise the compiler
// may start a matrix multiplication from an addend, which is faster, but rounds differently
// depending on other uses of a value. Use it to compare two programs bit for bit.
func (p *Program) FixSumOrder(keep bool) *Program {
	p.spec.KeepSums = keep
	return p
}

// Plan plans the launches and the memory of the program without compiling it, for a device that
// supports the given operations.
func (p *Program) Plan(supports exec.Supports) (*ir.Program, error) {
	return exec.Plan(p.g.ir, p.spec, supports)
}

// Compile plans and compiles the program. Values of the graph are bound to copies of their data; the caller must bind
// all other arguments.
func (p *Program) Compile(dev backend.Device) (*exec.Executable, error) {
	e, err := exec.Compile(p.g.ir, p.spec, dev)
	if err != nil {
		return nil, err
	}
	for i, a := range e.Program().Args {
		v, _ := p.g.ir.Lookup(a.Name)
		data, ok := p.g.values[v]
		if !ok {
			continue
		}
		if err := bindCopy(e, i, dev, data); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	return e, nil
}

// bindCopy binds argument i to a new buffer that holds data.
func bindCopy(e *exec.Executable, i int, dev backend.Device, data tensor.Tensor) error {
	b, err := dev.Alloc(len(data.Data))
	if err != nil {
		return err
	}
	e.Own(b)
	f, err := dev.Upload(b, 0, data.Data)
	if err == nil {
		err = f.Wait(context.Background())
	}
	if err != nil {
		return err
	}
	return e.BindAt(i, b)
}
