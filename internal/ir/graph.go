package ir

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// ErrGraph is wrapped by every error that building a graph reports.
var ErrGraph = errors.New("graph")

// Value identifies a node of a graph. The zero Value is no node: operations on it return the zero Value, so that only
// the first error of a graph is reported.
type Value int32

// Node is an operation applied to values.
type Node struct {
	Op   Op
	In   []Value
	Attr any    // the operation's attributes: a comparable struct, or nil
	Outs []Type // at least one; [Graph.Out] selects outputs after the first
	// Segment is the part of the forward pass to which the node belongs. Activation checkpointing recomputes a segment
	// in the backward pass.
	Segment int
	// Clone distinguishes a recomputed node from its original, so that the two are not merged.
	Clone int
}

// Type returns the type of the first output of the node.
func (n *Node) Type() Type { return n.Outs[0] }

// Bound is a bounded dimension.
type Bound struct {
	Name string
	Max  int
}

// Graph is a list of nodes in topological order: inputs precede their uses. The zero Graph is not ready for use; see
// [New].
type Graph struct {
	Nodes  []Node  // Nodes[0] is unused
	Bounds []Bound // Bounds[0] is unused; a Var is an index

	params  map[string]Value
	segment int
	clone   int
	err     error
}

// New returns an empty graph.
func New() *Graph {
	return &Graph{Nodes: make([]Node, 1), Bounds: make([]Bound, 1), params: map[string]Value{}}
}

// Err returns the first error in building the graph. It names the file and line of the caller outside the packages that
// build graphs.
func (g *Graph) Err() error { return g.err }

// Fail records err as the error of the graph if it is the first, and returns the zero Value.
func (g *Graph) Fail(err error) Value {
	if g.err == nil {
		g.err = fmt.Errorf("%s: %w: %w", caller(), ErrGraph, err)
	}
	return 0
}

// Bound adds a dimension whose size, 1 to max, is known only when the program runs.
func (g *Graph) Bound(name string, max int) Dim {
	for v := range g.Bounds {
		if v > 0 && g.Bounds[v].Name == name {
			if g.Bounds[v].Max != max {
				g.Fail(fmt.Errorf("bounded dimension %q is declared with maxima %d and %d", name, g.Bounds[v].Max, max))
			}
			return Dim{1, Var(v)}
		}
	}
	if max < 1 || len(g.Bounds) > 255 {
		g.Fail(fmt.Errorf("bounded dimension %q: maximum %d is not positive, or there are more than 255 of them", name, max))
	}
	g.Bounds = append(g.Bounds, Bound{name, max})
	return Dim{1, Var(len(g.Bounds) - 1)}
}

// MaxDims returns the largest values of the bounded dimensions, as [Shape.Resolve] expects them.
func (g *Graph) MaxDims() []int {
	dims := make([]int, len(g.Bounds))
	for i, b := range g.Bounds {
		dims[i] = b.Max
	}
	return dims
}

// SetSegment assigns later nodes to segment s; 0 is none.
func (g *Graph) SetSegment(s int) { g.segment = s }

// Node returns the node of v, which must not be changed.
func (g *Graph) Node(v Value) *Node { return &g.Nodes[v] }

// Type returns the type of v.
func (g *Graph) Type(v Value) Type {
	if v == 0 {
		return Type{}
	}
	return g.Nodes[v].Outs[0]
}

// Apply checks the inputs with the rule of op and appends a node.
func (g *Graph) Apply(op Op, attr any, in ...Value) Value {
	for _, v := range in {
		if v <= 0 || int(v) >= len(g.Nodes) {
			if g.err == nil {
				g.Fail(fmt.Errorf("%v: an input is missing or belongs to another graph", op))
			}
			return 0
		}
	}
	def := Def(op)
	types := make([]Type, len(in))
	for i, v := range in {
		types[i] = g.Nodes[v].Outs[0]
	}
	outs, err := def.Infer(attr, types)
	if err == nil {
		err = checkQuantized(op, types)
	}
	for i := 0; i < len(outs) && err == nil; i++ {
		err = g.checkType(outs[i])
	}
	if err != nil {
		return g.Fail(fmt.Errorf("%v%v: %w", op, types, err))
	}
	return g.append(Node{Op: op, In: in, Attr: attr, Outs: outs})
}

func (g *Graph) append(n Node) Value {
	n.Segment, n.Clone = g.segment, g.clone
	g.Nodes = append(g.Nodes, n)
	return Value(len(g.Nodes) - 1)
}

// Param returns the input of the graph called name, and adds it if there is none yet.
func (g *Graph) Param(name string, t Type) Value {
	if v, ok := g.params[name]; ok {
		if !g.Type(v).Equal(t) {
			return g.Fail(fmt.Errorf("param %q is declared as %v and as %v", name, g.Type(v), t))
		}
		return v
	}
	if err := g.checkType(t); err != nil {
		return g.Fail(fmt.Errorf("param %q: %w", name, err))
	}
	v := g.append(Node{Op: Param, Attr: ParamAttr{name}, Outs: []Type{t}})
	g.params[name] = v
	return v
}

// Lookup returns the parameter called name.
func (g *Graph) Lookup(name string) (Value, bool) {
	v, ok := g.params[name]
	return v, ok
}

// ParamNames returns the names of the parameters in order of creation.
func (g *Graph) ParamNames() []string {
	var names []string
	for i := range g.Nodes {
		if p, ok := g.Nodes[i].Attr.(ParamAttr); ok {
			names = append(names, p.Name)
		}
	}
	return names
}

// Out returns output i of the node v; output 0 is v itself.
func (g *Graph) Out(v Value, i int) Value {
	if v == 0 || i == 0 {
		return v
	}
	if i < 0 || i >= len(g.Nodes[v].Outs) {
		return g.Fail(fmt.Errorf("%v has %d outputs, not %d", g.Nodes[v].Op, len(g.Nodes[v].Outs), i+1))
	}
	return g.append(Node{Op: Out, In: []Value{v}, Attr: OutAttr{i}, Outs: []Type{g.Nodes[v].Outs[i]}})
}

// caller returns the first frame outside the packages that build graphs.
func caller() string {
	pc := make([]uintptr, 32)
	frames := runtime.CallersFrames(pc[:runtime.Callers(3, pc)])
	for {
		f, more := frames.Next()
		name := f.Function
		inside := strings.Contains(name, "lorafuse/internal/ir.") || strings.Contains(name, "lorafuse/graph.") || strings.Contains(name, "lorafuse/internal/nn.") || strings.Contains(name, "lorafuse/lora.")
		if !inside || strings.HasSuffix(f.File, "_test.go") || !more {
			return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		}
	}
}
