// Package graph is the user's face of the lazy graph: tensors that are formulas
// until they are compiled or evaluated. Shapes and element types are known when
// a tensor is made; nothing runs before [Graph.Compile] or [Eval]. A mistake
// does not return an error at once: the graph keeps the first one, with the
// file and line of the caller, and compiling returns it, so that model code
// reads like formulas.
//
// Axes are sizes, or multiples of a dimension whose size is set for each run
// ([Graph.Bound]). Rows are chosen by index: [Tensor.Gather] takes them from a table,
// [Tensor.ScatterRows] writes them into one, also to join tensors whose axes are
// bounded by different dimensions, and [Tensor.RowsGemm] multiplies each by a matrix of
// its own.
package graph

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// Graph holds the tensors of one computation.
type Graph struct{ ir *ir.Graph }

// Tensor is a value of a graph: small, comparable, nothing to free. The zero
// Tensor stands for an absent operand.
type Tensor struct {
	g *Graph
	v ir.Value
}

// New returns an empty graph.
func New() *Graph { return &Graph{ir.New()} }

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
	if s, ok := dev.(backend.Storer); ok {
		p.spec.Store, p.spec.Stores, p.spec.Spare = tensor.BF16, s.Stores, spare
	}
	return p
}

// Plan lays the program out for a device without compiling it.
func (p *Program) Plan(supports exec.Supports) (*ir.Program, error) {
	return exec.Plan(p.g.ir, p.spec, supports)
}

// Compile lays the program out and compiles it.
func (p *Program) Compile(dev backend.Device) (*exec.Executable, error) {
	return exec.Compile(p.g.ir, p.spec, dev)
}

// Eval computes tensors of one graph on a device. args holds the params by
// name; dims sets bounded dimensions by name, which are at their largest
// otherwise.
func Eval(ctx context.Context, dev backend.Device, ts []Tensor, args map[string]*tensor.Tensor, dims map[string]int) ([]*tensor.Tensor, error) {
	if len(ts) == 0 {
		return nil, nil
	}
	g := ts[0].g
	p := g.Program()
	for i, t := range ts {
		p.Result(resultName(i), t)
	}
	e, err := p.Compile(dev)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	for _, name := range slices.Sorted(maps.Keys(args)) {
		if _, ok := g.ir.Lookup(name); !ok {
			return nil, fmt.Errorf("graph: %w: there is no param %q%s", exec.ErrArgument, name, suggest.DidYouMean(name, g.ir.ParamNames()))
		}
	}
	for name, n := range dims {
		if err := e.SetDim(name, n); err != nil {
			return nil, err
		}
	}
	at := g.ir.MaxDims()
	for v, b := range g.ir.Bounds {
		if n, ok := dims[b.Name]; ok && v > 0 {
			at[v] = n
		}
	}
	var free []backend.Buffer
	defer func() {
		for _, b := range free {
			b.Free()
		}
	}()
	for _, a := range e.Program().Args {
		buf, err := dev.Alloc(a.Bytes(g.ir.MaxDims()))
		if err != nil {
			return nil, err
		}
		free = append(free, buf)
		if err := e.Bind(a.Name, buf); err != nil {
			return nil, err
		}
		if a.Written {
			continue
		}
		t := args[a.Name]
		if t == nil || t.DType != a.Type.DType || len(t.Data) != a.Type.Bytes(at) {
			return nil, fmt.Errorf("graph: %w: param %q wants %v", exec.ErrArgument, a.Name, a.Type)
		}
		f, err := dev.Upload(buf, 0, t.Data)
		if err == nil {
			err = f.Wait(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := e.RunWait(ctx); err != nil {
		return nil, err
	}
	out := make([]*tensor.Tensor, len(ts))
	for i, t := range ts {
		typ := t.Type()
		out[i] = &tensor.Tensor{DType: typ.DType, Shape: typ.Shape.Resolve(at), Data: make([]byte, typ.Bytes(at))}
		j := e.Program().ArgIndex(resultName(i))
		f, err := dev.Download(out[i].Data, free[j], 0)
		if err == nil {
			err = f.Wait(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func resultName(i int) string { return fmt.Sprintf("result.%d", i) }
