package graph

import (
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/internal/ir"
)

// formula describes a computation without its data: the nodes that some roots depend on, with the indices of their
// inputs. Graphs that were built in the same way have equal formulas, whatever else they contain and whatever their
// inputs are named.
type formula struct {
	terms  []term
	inputs []int32 // inputs of all terms, concatenated: index in terms + 1
	roots  []int32
	bounds []ir.Bound // of the graph
	hash   uint64
}

// term is a node of a formula. A param has its type instead of an attribute, since its name does not matter.
type term struct {
	op             ir.Op
	attr           any
	typ            ir.Type
	inputs         int
	segment, clone int
}

// reading finds the formula of some values of a graph. It is reused, and writes no pointers while it reads.
type reading struct {
	graph  *ir.Graph
	roots  []ir.Value
	live   []ir.Value // nodes that roots depend on, in graph order
	params []ir.Value // the params among them
	number []int32    // index in live + 1 of each value, or 0
	hash   uint64
}

// read visits everything that r.roots depend on.
func (r *reading) read() {
	g := r.graph
	last := slices.Max(r.roots)
	r.live, r.params = r.live[:0], r.params[:0]
	r.number = slices.Grow(r.number[:0], int(last)+1)[:last+1]
	clear(r.number)
	for _, v := range r.roots {
		r.number[v] = 1
	}
	for v := last; v > 0; v-- {
		if r.number[v] != 0 {
			for _, in := range g.Nodes[v].In {
				r.number[in] = 1
			}
		}
	}
	r.hash = uint64(len(g.Bounds))
	for v := ir.Value(1); v <= last; v++ {
		if r.number[v] != 0 {
			r.add(v)
		}
	}
	for _, v := range r.roots {
		r.mix(uint64(r.number[v]))
	}
}

// add numbers a node and adds it to the hash. Most attributes are left to the comparison.
func (r *reading) add(v ir.Value) {
	n := &r.graph.Nodes[v]
	r.live = append(r.live, v)
	r.number[v] = int32(len(r.live))
	r.mix(uint64(n.Op) | uint64(len(n.In))<<8 | uint64(n.Clone)<<32)
	for _, in := range n.In {
		r.mix(uint64(r.number[in]))
	}
	switch n.Op {
	case ir.Param:
		r.params = append(r.params, v)
		r.mix(uint64(n.Outs[0].DType))
		for _, d := range n.Outs[0].Shape {
			r.mix(uint64(d.N)<<8 | uint64(d.Var))
		}
	case ir.Const:
		r.mix(math.Float64bits(n.Attr.(ir.ConstAttr).Value))
	}
}

// mix adds a word to the hash.
func (r *reading) mix(x uint64) {
	const odd = 0x9E3779B97F4A7C15 // 2^64 divided by the golden ratio
	h := (r.hash ^ x) * odd
	r.hash = h ^ h>>29
}

// is reports whether r has read the formula f.
func (r *reading) is(f *formula) bool {
	if r.hash != f.hash || len(r.live) != len(f.terms) || len(r.roots) != len(f.roots) || !slices.Equal(r.graph.Bounds, f.bounds) {
		return false
	}
	for i, v := range r.roots {
		if r.number[v] != f.roots[i] {
			return false
		}
	}
	inputs := f.inputs
	for i, v := range r.live {
		n, t := &r.graph.Nodes[v], &f.terms[i]
		if n.Op != t.op || len(n.In) != t.inputs || n.Segment != t.segment || n.Clone != t.clone {
			return false
		}
		for j, in := range n.In {
			if r.number[in] != inputs[j] {
				return false
			}
		}
		inputs = inputs[t.inputs:]
		if n.Op == ir.Param {
			if !n.Outs[0].Equal(t.typ) {
				return false
			}
		} else if n.Attr != t.attr {
			return false
		}
	}
	return true
}

// formula returns a copy of the formula that r has read.
func (r *reading) formula() *formula {
	f := &formula{bounds: slices.Clone(r.graph.Bounds), hash: r.hash}
	for _, v := range r.live {
		n := &r.graph.Nodes[v]
		t := term{op: n.Op, inputs: len(n.In), segment: n.Segment, clone: n.Clone}
		if n.Op == ir.Param {
			t.typ = ir.Type{DType: n.Outs[0].DType, Shape: slices.Clone(n.Outs[0].Shape)}
		} else {
			t.attr = n.Attr
		}
		f.terms = append(f.terms, t)
		for _, in := range n.In {
			f.inputs = append(f.inputs, r.number[in])
		}
	}
	for _, v := range r.roots {
		f.roots = append(f.roots, r.number[v])
	}
	return f
}
