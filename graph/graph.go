// Package graph is the user's face of the lazy graph: tensors that are formulas
// until they are compiled or evaluated. Shapes and element types are known when
// a tensor is made; nothing runs before [Program.Compile] or an evaluation. A mistake
// does not return an error at once: the graph keeps the first one, with the
// file and line of the caller, and compiling returns it, so that model code
// reads like formulas.
//
// Axes are sizes, or multiples of a dimension whose size is set for each run
// ([Graph.Bound]). Rows are chosen by index: [Tensor.Gather] takes them from a table,
// [Tensor.ScatterRows] writes them into one, also to join tensors whose axes are
// bounded by different dimensions, and [Tensor.RowsGemm] multiplies each by a matrix of
// its own.
//
// A formula begins with host tensors, which need no names, and ends in an
// [Evaluator], which knows one device:
//
//	e := graph.NewEvaluator(dev, graph.EvaluatorOptions{})
//	defer e.Close()
//	g := graph.New()
//	x, w := g.Value(inputs), g.Value(weight)      // read when they are needed
//	y := x.MatMulT(w).Slice(0, -4, graph.End)     // leading axes are rows
//	out, err := y.Eval(ctx, e)
//
// The evaluator keeps what it has compiled, by the formula and not by the graph:
// a loop may build its graph anew each time, with other data, and nothing is
// planned twice. [Evaluator.EvalAsync] returns before the device has begun.
// Gradients are tensors of the same graph, and [AdamW] trains values with them.
//
// Programs that run long keep their state on the device instead: params by name,
// results and updates, laid out by [Graph.Program] and compiled once.
package graph

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// Graph holds the tensors of one computation.
type Graph struct {
	ir     *ir.Graph
	values map[ir.Value]tensor.Tensor // data of params that were put in as values
	known  map[identity]ir.Value      // the values by their data
	last   atomic.Pointer[memo]       // of the last evaluation
}

// Tensor is a value of a graph: small, comparable, nothing to free. The zero
// Tensor stands for an absent operand.
type Tensor struct {
	g *Graph
	v ir.Value
}

// New returns an empty graph.
func New() *Graph { return &Graph{ir: ir.New()} }

// IR gives the nodes of the graph.
func (g *Graph) IR() *ir.Graph { return g.ir }

// Err is the first mistake made while building, or nil.
func (g *Graph) Err() error { return g.ir.Err() }

// Fail records a mistake, if it is the first.
func (g *Graph) Fail(err error) Tensor { return Tensor{g, g.ir.Fail(err)} }

// Bound adds a dimension whose size is set for each run: 1 to max.
func (g *Graph) Bound(name string, max int) ir.Dim { return g.ir.Bound(name, max) }

// Param is an input of the graph.
func (g *Graph) Param(name string, d tensor.DType, shape ...ir.Dim) Tensor {
	if v, ok := g.ir.Lookup(name); ok {
		if _, ok = g.values[v]; ok {
			return g.Fail(fmt.Errorf("param %q: a value of the graph has this name", name))
		}
	}
	return g.Of(g.ir.Param(name, ir.Type{DType: d, Shape: shape}))
}

// Const fills a shape with x, as f32.
func (g *Graph) Const(x float64, shape ...ir.Dim) Tensor {
	return g.Of(g.ir.Const(x, ir.Type{DType: tensor.F32, Shape: shape}))
}

// Of names a value of the graph's nodes.
func (g *Graph) Of(v ir.Value) Tensor { return Tensor{g, v} }

// value is the node of t, which must be one of g or absent.
func (g *Graph) value(t Tensor) ir.Value {
	if t.g != nil && t.g != g {
		return g.ir.Fail(errors.New("an operand belongs to another graph"))
	}
	return t.v
}

// SetSegment puts what is made from now on into segment s of the forward pass,
// for activation checkpointing; 0 is none.
func (g *Graph) SetSegment(s int) { g.ir.SetSegment(s) }

// Gradients of the scalar loss for each of wrt. With checkpoint, what lies
// inside of a segment is computed again instead of kept.
func (g *Graph) Gradients(loss Tensor, wrt []Tensor, checkpoint bool) []Tensor {
	return g.GradientsWith(loss, wrt, ir.GradOptions{Checkpoint: checkpoint})
}

// GradientsWith is Gradients with all options, such as checkpointing of some
// segments only.
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

// Program says what a compiled graph gives: results by name, and params that
// are overwritten when a run ends.
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

// Update makes t the new contents of the param called name when a run ends.
func (p *Program) Update(name string, t Tensor) *Program {
	p.spec.Updates = append(p.spec.Updates, exec.Update{Param: name, Value: p.g.value(t)})
	return p
}

// Accumulate adds t to the contents of the param called name when a run ends.
// t is computed whole first: the param holds the left fold of what the runs give.
func (p *Program) Accumulate(name string, t Tensor) *Program {
	p.spec.Updates = append(p.spec.Updates, exec.Update{Param: name, Value: p.g.value(t), Accumulate: true})
	return p
}

// Store lets activations, and tables whose rows are updated, lie in memory as
// bfloat16 wherever dev takes them so, which a device that was opened with
// another precision does nowhere. One part in spare of the memory may be spent
// on leaving some as they are.
func (p *Program) Store(dev backend.Device, spare int) *Program {
	p.spec.Store, p.spec.Stores, p.spec.Spare = tensor.BF16, dev.Stores, spare
	return p
}

// KeepSums has values be added as formulas have it, so that what one is rounded to does
// not depend on what reads it.
func (p *Program) KeepSums(keep bool) *Program {
	p.spec.KeepSums = keep
	return p
}

// Plan lays the program out for a device without compiling it.
func (p *Program) Plan(supports exec.Supports) (*ir.Program, error) {
	return exec.Plan(p.g.ir, p.spec, supports)
}

// Compile lays the program out and compiles it. Values of the graph are bound to
// copies of their data; all other arguments are the caller's to bind.
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

// bindCopy gives argument i a buffer of its own with the data.
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
