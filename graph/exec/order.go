package exec

import (
	"slices"

	"github.com/lorafuse/lorafuse/ir"
)

// order takes the nodes that are launched in the order in which they were
// made, but for those that only the end of the program reads: they follow the
// last of their inputs at once. A sum of gradients is such a node; made where
// it stands, at the end, it would keep all that backward computes alive.
func (p *planner) order() {
	after := p.early()
	for v := ir.Value(1); int(v) < len(p.g.Nodes); v++ {
		switch p.g.Node(v).Op {
		case ir.Param, ir.Out, ir.Reshape, ir.Detach:
		default:
			p.launch = append(p.launch, v)
		}
	}
	place := func(v ir.Value) ir.Value {
		if a, ok := after[v]; ok {
			return a
		}
		return v
	}
	slices.SortStableFunc(p.launch, func(a, b ir.Value) int { return int(place(a)) - int(place(b)) })
	p.gather()
}

// gather moves products next to earlier ones of the same first matrix, such as
// the adapters of q, k and v to each other: a device may compute them together.
// They move by a few launches only, so as not to keep values alive for long.
func (p *planner) gather() {
	const window = 8
	for i, v := range p.launch {
		if p.g.Node(v).Op != ir.Gemm {
			continue
		}
		first, _ := p.base(p.g.Node(v).In[0])
		to := i
		for j := i - 1; j >= max(0, i-window) && !p.needs(v, p.launch[j]); j-- {
			if u := p.g.Node(p.launch[j]); u.Op == ir.Gemm {
				if b, _ := p.base(u.In[0]); b == first {
					to = j + 1
				}
			}
		}
		copy(p.launch[to+1:i+1], p.launch[to:i])
		p.launch[to] = v
	}
}

// needs reports whether v reads what u makes.
func (p *planner) needs(v, u ir.Value) bool {
	return slices.ContainsFunc(p.g.Node(v).In, func(in ir.Value) bool {
		b, _ := p.base(in)
		return b == u
	})
}

// early gives the nodes that only results and updates read, each with the node
// that it may follow: the last that it reads, or the last that reads the param
// that it updates.
func (p *planner) early() map[ir.Value]ir.Value {
	readers := map[ir.Value][]ir.Value{}
	for v := ir.Value(1); int(v) < len(p.g.Nodes); v++ {
		switch n := p.g.Node(v); n.Op {
		case ir.Out, ir.Reshape, ir.Detach:
		default:
			for _, in := range n.In {
				b, _ := p.base(in)
				readers[b] = append(readers[b], v)
			}
		}
	}
	after := map[ir.Value]ir.Value{}
	for i, root := range p.roots {
		v, _ := p.base(root)
		if len(readers[v]) > 0 {
			continue
		}
		last := ir.Value(0)
		for _, in := range p.g.Node(v).In {
			if b, _ := p.base(in); p.g.Node(b).Op != ir.Param {
				last = max(last, b)
			}
		}
		if last == 0 {
			continue
		}
		if u := i - len(p.spec.Results); u >= 0 {
			param, _ := p.g.Lookup(p.spec.Updates[u].Param)
			for _, r := range readers[param] {
				if r != v {
					last = max(last, r)
				}
			}
		}
		after[v] = max(after[v], last)
	}
	return after
}
