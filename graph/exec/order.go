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
	p.approach(after)
}

// window is how many launches one moves by at most, so as not to keep values alive for long.
const window = 8

// gather moves products next to earlier ones of the same first matrix, such as
// the adapters of q, k and v to each other: a device may compute them together.
func (p *planner) gather() {
	for i, v := range p.launch {
		op := p.g.Node(v).Op
		if op != ir.Gemm && op != ir.LoRADown {
			continue
		}
		first, _ := p.base(p.g.Node(v).In[0])
		to := i
		for j := i - 1; j >= max(0, i-window) && !p.needs(v, p.launch[j]); j-- {
			if u := p.g.Node(p.launch[j]); u.Op == op {
				if b, _ := p.base(u.In[0]); b == first {
					to = j + 1
				}
			}
		}
		p.move(i, to)
	}
}

// approach moves adapters to the products that read what they give, and the same matrix as
// they, such as dy·B to dy·W + dh·A: a device may read that once. Sums of gradients
// that read what they give too come behind these then.
func (p *planner) approach(sums map[ir.Value]ir.Value) {
	for i := range p.launch {
		v := p.launch[i]
		if p.g.Node(v).Op != ir.Gemm {
			continue
		}
		lows := p.lows(v)
		if len(lows) == 0 {
			continue
		}
		at := i // where v is
		for j := i - 1; j >= max(0, i-window); j-- {
			o := p.launch[j]
			if _, sum := sums[o]; sum && slices.ContainsFunc(lows, func(low ir.Value) bool { return p.sumNeeds(o, low, sums) }) {
				p.move(j, at)
				at--
			}
		}
		for _, low := range lows {
			from := slices.Index(p.launch, low)
			if from >= max(0, at-window) && p.passes(low, p.launch[from+1:at], sums) {
				p.move(from, at-1)
			}
		}
	}
}

// lows gives the launches whose results a product reads beside the matrix that they begin
// with.
func (p *planner) lows(v ir.Value) (lows []ir.Value) {
	products := p.g.Products(v)
	for _, h := range products {
		low, _ := p.base(h.A)
		switch n := p.g.Node(low); {
		case n.Op == ir.LoRADown:
		case n.Op == ir.Gemm && len(p.g.Products(low)) == 1:
		default:
			continue
		}
		x, _ := p.base(p.g.Node(low).In[0])
		if slices.ContainsFunc(products, func(o ir.Product) bool { b, _ := p.base(o.A); return b == x }) {
			lows = append(lows, low)
		}
	}
	return lows
}

// passes reports whether a launch may come behind others: none reads it, or is a
// product of the same first matrix that is more than a sum of gradients.
func (p *planner) passes(low ir.Value, others []ir.Value, sums map[ir.Value]ir.Value) bool {
	x, _ := p.base(p.g.Node(low).In[0])
	return !slices.ContainsFunc(others, func(o ir.Value) bool {
		if p.needs(o, low) {
			return true
		}
		if _, sum := sums[o]; sum || p.g.Node(o).Op != ir.Gemm && p.g.Node(o).Op != ir.LoRADown {
			return false
		}
		b, _ := p.base(p.g.Node(o).In[0])
		return b == x
	})
}

// move puts launch i at place to.
func (p *planner) move(i, to int) {
	v := p.launch[i]
	if to <= i {
		copy(p.launch[to+1:i+1], p.launch[to:i])
	} else {
		copy(p.launch[i:to], p.launch[i+1:to+1])
	}
	p.launch[to] = v
}

// needs reports whether v reads what u makes.
func (p *planner) needs(v, u ir.Value) bool {
	return slices.ContainsFunc(p.g.Node(v).In, func(in ir.Value) bool {
		b, _ := p.base(in)
		return b == u
	})
}

// sumNeeds reports whether a sum of gradients reads what u makes, or adds a
// gradient that does.
func (p *planner) sumNeeds(sum, u ir.Value, sums map[ir.Value]ir.Value) bool {
	return p.needs(sum, u) || slices.ContainsFunc(p.g.Node(sum).In, func(in ir.Value) bool {
		b, _ := p.base(in)
		_, term := sums[b]
		return term && p.needs(b, u)
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
		last := p.lastMade(v)
		if last == 0 {
			continue
		}
		u := i - len(p.spec.Results)
		if u >= 0 && p.spec.Updates[u].Accumulate && slices.Equal(readers[last], []ir.Value{v}) {
			if made := p.lastMade(last); made != 0 { // the term that is added goes with its sum
				after[last], last = made, made
			}
		}
		if u >= 0 {
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

// lastMade is the last of what v reads that is not a param, or 0.
func (p *planner) lastMade(v ir.Value) ir.Value {
	last := ir.Value(0)
	for _, in := range p.g.Node(v).In {
		if b, _ := p.base(in); p.g.Node(b).Op != ir.Param {
			last = max(last, b)
		}
	}
	return last
}
