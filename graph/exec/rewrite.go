// Package exec compiles a graph to a program and runs it. [Compile] converts the graph to canonical form, fuses and
// lowers operations for the device, and plans memory.
package exec

import (
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/internal/ir"
)

// rewriter copies a graph node by node, so that a pass can replace nodes. It merges equal nodes (common
// subexpressions).
type rewriter struct {
	old, new *ir.Graph
	uses     []int                   // number of readers of each value of the old graph
	vals     map[ir.Value]ir.Value   // new value by old value
	outs     map[ir.Value][]ir.Value // outputs of old nodes that were split into several nodes
	seen     map[nodeKey]ir.Value
}

type nodeKey struct {
	op    ir.Op
	attr  any
	in    string
	clone int
}

// rule may emit a replacement for node v of the old graph, whose inputs are already in the new graph. It returns nil to
// keep the node.
type rule func(r *rewriter, v ir.Value, n *ir.Node, in []ir.Value) []ir.Value

// rewrite copies the nodes of g that roots need, applying rule to each, and returns the new graph with its roots.
func rewrite(g *ir.Graph, roots []ir.Value, apply rule) (*ir.Graph, []ir.Value, error) {
	r := &rewriter{
		old: g, new: ir.New(), uses: make([]int, len(g.Nodes)),
		vals: map[ir.Value]ir.Value{}, outs: map[ir.Value][]ir.Value{}, seen: map[nodeKey]ir.Value{},
	}
	r.new.Bounds = append(r.new.Bounds[:0], g.Bounds...)
	live := reach(g, roots)
	for v := range g.Nodes {
		if live[v] {
			for _, in := range g.Nodes[v].In {
				r.uses[in]++
			}
		}
	}
	for _, v := range roots {
		r.uses[v]++
	}
	var waiting []ir.Value
	for v := ir.Value(1); int(v) < len(g.Nodes); v++ {
		if live[v] && !r.node(v, apply) {
			waiting = append(waiting, v)
		}
	}
	for _, v := range waiting {
		if !r.node(v, apply) && r.new.Err() == nil {
			return nil, nil, fmt.Errorf("exec: a rewrite of %s waits for itself", g.Describe(v))
		}
	}
	if err := r.new.Err(); err != nil {
		return nil, nil, fmt.Errorf("exec: %w", err)
	}
	mapped := make([]ir.Value, len(roots))
	for i, v := range roots {
		mapped[i] = r.vals[v]
		if was, is := g.Type(v), r.new.Type(mapped[i]); !was.Equal(is) {
			return nil, nil, fmt.Errorf("exec: a rewrite of %s made it %v", g.Describe(v), is)
		}
	}
	return r.new, mapped, nil
}

// node copies v. It reports false if an input is not copied yet because a rule postponed it by returning a zero value.
func (r *rewriter) node(v ir.Value, apply rule) bool {
	n := r.old.Node(v)
	if n.Op == ir.Param {
		r.vals[v] = r.new.Param(n.Attr.(ir.ParamAttr).Name, n.Outs[0])
		return true
	}
	in := make([]ir.Value, len(n.In))
	for i, x := range n.In {
		if in[i] = r.vals[x]; in[i] == 0 {
			return false
		}
	}
	if n.Op == ir.Out {
		if outs := r.outs[n.In[0]]; outs != nil {
			r.vals[v] = outs[n.Attr.(ir.OutAttr).Index]
			return true
		}
	}
	first := len(r.new.Nodes)
	outs := apply(r, v, n, in)
	switch {
	case outs == nil:
		r.vals[v] = r.emit(n, in)
	case outs[0] == 0:
		return r.new.Err() != nil
	default:
		for i := first; i < len(r.new.Nodes); i++ {
			r.new.Nodes[i].Clone = n.Clone
		}
		r.vals[v], r.outs[v] = outs[0], outs
	}
	return true
}

// emit copies node n with new inputs, or returns an equal node.
func (r *rewriter) emit(n *ir.Node, in []ir.Value) ir.Value {
	var key strings.Builder
	for _, v := range in {
		fmt.Fprintf(&key, "%d,", v)
	}
	k := nodeKey{n.Op, n.Attr, key.String(), n.Clone}
	if v, ok := r.seen[k]; ok {
		return v
	}
	var v ir.Value
	if n.Op == ir.Out {
		v = r.new.Out(in[0], n.Attr.(ir.OutAttr).Index)
	} else {
		v = r.new.Apply(n.Op, n.Attr, in...)
	}
	if v != 0 {
		r.new.Nodes[v].Clone = n.Clone
		r.seen[k] = v
	}
	return v
}

// single reports whether the old value v has exactly one reader.
func (r *rewriter) single(v ir.Value) bool { return r.uses[v] == 1 }

// reach marks the nodes that roots depend on.
func reach(g *ir.Graph, roots []ir.Value) []bool {
	live := make([]bool, len(g.Nodes))
	for _, v := range roots {
		live[v] = true
	}
	for v := len(g.Nodes) - 1; v > 0; v-- {
		if live[v] {
			for _, in := range g.Nodes[v].In {
				live[in] = true
			}
		}
	}
	return live
}
