package ir

import (
	"fmt"

	"github.com/lorafuse/lorafuse/tensor"
)

// Host is a float64 value on the host, computed by a reference.
type Host struct {
	DType tensor.DType
	Shape []int
	Data  []float64
}

// NewHost returns a value of zeros.
func NewHost(t Type, dims []int) *Host {
	s := t.Shape.Resolve(dims)
	return &Host{t.DType, s, make([]float64, product(s))}
}

// Reference computes values of a graph in float64, one operation at a time. Backends are tested against it. args holds
// the params that are read, dims the run-time values of the bounded dimensions (see [Graph.MaxDims]).
func (g *Graph) Reference(outs []Value, args map[string]*Host, dims []int) ([]*Host, error) {
	if g.err != nil {
		return nil, g.err
	}
	r := &evaluator{g: g, args: args, dims: dims, done: map[Value][]*Host{}}
	hosts := make([]*Host, len(outs))
	for i, v := range outs {
		h, err := r.value(v)
		if err != nil {
			return nil, err
		}
		hosts[i] = h[0]
	}
	return hosts, nil
}

type evaluator struct {
	g    *Graph
	args map[string]*Host
	dims []int
	done map[Value][]*Host
}

func (r *evaluator) value(v Value) ([]*Host, error) {
	if h, ok := r.done[v]; ok {
		return h, nil
	}
	n := r.g.Node(v)
	if n.Op == Param {
		name := n.Attr.(ParamAttr).Name
		h := r.args[name]
		if h == nil {
			return nil, fmt.Errorf("%w: no argument for param %q", ErrGraph, name)
		}
		if want := n.Outs[0].Shape.Elements(r.dims); len(h.Data) != want {
			return nil, fmt.Errorf("%w: param %q has %d elements, expected %d", ErrGraph, name, len(h.Data), want)
		}
		r.done[v] = []*Host{h}
		return r.done[v], nil
	}
	in := make([]*Host, len(n.In))
	for i, x := range n.In {
		h, err := r.value(x)
		if err != nil {
			return nil, err
		}
		in[i] = h[0]
		if n.Op == Out {
			in[i] = h[n.Attr.(OutAttr).Index]
		}
	}
	outs, err := r.apply(n, in)
	if err != nil {
		return nil, err
	}
	r.done[v] = outs
	return outs, nil
}

func (r *evaluator) apply(n *Node, in []*Host) ([]*Host, error) {
	if n.Op == Out {
		return in, nil
	}
	def := Def(n.Op)
	if def.Reference != nil {
		outs := make([]*Host, len(n.Outs))
		for i, t := range n.Outs {
			outs[i] = NewHost(t, r.dims)
		}
		def.Reference(n.Attr, in, outs)
		return outs, nil
	}
	if def.Decompose == nil {
		return nil, fmt.Errorf("%w: %v has neither reference nor decomposition", ErrGraph, n.Op)
	}
	sub := New()
	sub.Bounds = r.g.Bounds
	args := map[string]*Host{}
	vs := make([]Value, len(in))
	for i, x := range n.In {
		name := fmt.Sprint(i)
		vs[i], args[name] = sub.Param(name, r.g.Type(x)), in[i]
	}
	return sub.Reference(def.Decompose(sub, n.Attr, vs), args, r.dims)
}

// strides returns the row-major strides of a shape.
func strides(shape []int) []int {
	s := make([]int, len(shape))
	for i, n := len(shape)-1, 1; i >= 0; i-- {
		s[i] = n
		n *= shape[i]
	}
	return s
}

// each calls f with every flat index and its coordinates, in order.
func each(shape []int, f func(i int, at []int)) {
	at := make([]int, len(shape))
	for i := range product(shape) {
		f(i, at)
		for a := len(at) - 1; a >= 0; a-- {
			if at[a]++; at[a] < shape[a] {
				break
			}
			at[a] = 0
		}
	}
}

// broadcastTo broadcasts h to a shape.
func broadcastTo(h *Host, shape []int) []float64 {
	if product(h.Shape) == product(shape) {
		return h.Data
	}
	src, off := strides(h.Shape), len(shape)-len(h.Shape)
	out := make([]float64, product(shape))
	each(shape, func(i int, at []int) {
		j := 0
		for a := range h.Shape {
			if h.Shape[a] != 1 {
				j += at[off+a] * src[a]
			}
		}
		out[i] = h.Data[j]
	})
	return out
}
