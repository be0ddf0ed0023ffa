package exec

import (
	"slices"

	"github.com/lorafuse/lorafuse/internal/ir"
)

// order sorts the launches by the creation of their nodes, with one exception. A node that only the end of the program
// reads directly follows the last of its inputs. Sums of gradients are such nodes: computed at the end, they would keep
// all gradients of the backward pass alive.
func (p *planner) order() {
	after := p.early()
	p.join(after)
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

// join moves early nodes that are gradients of A, for adapters of the same x, to the last of them, so that a device can
// compute them together.
func (p *planner) join(after map[ir.Value]ir.Value) {
	type key struct {
		x      ir.Value
		output int
	}
	last := map[key]ir.Value{} // of the same x
	for v := ir.Value(len(p.g.Nodes) - 1); v > 0; v-- {
		n := p.g.Node(v)
		if _, ok := after[v]; !ok || n.Op != ir.LoRADownGrad {
			continue
		}
		x, output := p.base(n.In[1])
		at := max(v, after[v])
		if to, ok := last[key{x, output}]; ok && to-at <= joined {
			at = to
		}
		last[key{x, output}] = at
		for sum, place := range after {
			if p.needs(sum, v) {
				after[sum] = max(place, at)
			}
		}
		after[v] = at
	}
}

// joined is the maximum number of nodes that a gradient is moved over. They are those of the products of one x.
const joined = 48

// window is the maximum distance that a launch is moved. A longer one would keep the values between alive for longer.
const window = 8

// gather moves products with the same x next to each other, so that a device can compute them together. Examples are q,
// k and v, or the x·Aᵀ of their adapters.
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

// hold keeps what products of the same x read until the last of them, so that a device can compute them together: the
// output of one then lies over no factor of another.
func (p *planner) hold() {
	for from, to := 0, 0; from < len(p.launch); from = to {
		for to = from + 1; to < len(p.launch) && p.sameFactor(p.launch[from], p.launch[to]); to++ {
		}
		for _, v := range p.launch[from : to-1] {
			for i, in := range p.g.Node(v).In {
				if b, k := p.base(in); i != p.over(v, 0) && p.g.Node(b).Op != ir.Param {
					p.reads[b][k] = max(p.reads[b][k], to-1)
				}
			}
		}
	}
}

// sameFactor reports whether u and v are products of the same x.
func (p *planner) sameFactor(u, v ir.Value) bool {
	m, n, x := p.g.Node(u), p.g.Node(v), 0
	switch {
	case m.Op != n.Op:
		return false
	case m.Op == ir.LoRADownGrad:
		x = 1
	case m.Op != ir.Gemm:
		return false
	}
	a, _ := p.base(m.In[x])
	b, _ := p.base(n.In[x])
	return a == b
}

// approach moves h = x·Aᵀ directly before y = x·Wᵀ + h·Bᵀ, so that a device can read x once for both. In the backward
// pass these are dh = dy·B and dx = dy·W + dh·A. A sum of gradients between the two that reads h moves after y.
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
		at := i // index of v
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

// lows returns, for a product such as y = x·Wᵀ + h·Bᵀ, the launches that compute h from the same x.
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

// passes reports whether h = x·Aᵀ may move after other launches. It may not pass a launch that reads it, nor leave
// other products of x that gather placed next to it; sums of gradients do not count as such.
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

// move moves launch i to index to.
func (p *planner) move(i, to int) {
	v := p.launch[i]
	if to <= i {
		copy(p.launch[to+1:i+1], p.launch[to:i])
	} else {
		copy(p.launch[i:to], p.launch[i+1:to+1])
	}
	p.launch[to] = v
}

// needs reports whether v reads an output of u.
func (p *planner) needs(v, u ir.Value) bool {
	return slices.ContainsFunc(p.g.Node(v).In, func(in ir.Value) bool {
		b, _ := p.base(in)
		return b == u
	})
}

// sumNeeds reports whether a sum of gradients reads an output of u, or adds a gradient that does.
func (p *planner) sumNeeds(sum, u ir.Value, sums map[ir.Value]ir.Value) bool {
	return p.needs(sum, u) || slices.ContainsFunc(p.g.Node(sum).In, func(in ir.Value) bool {
		b, _ := p.base(in)
		_, term := sums[b]
		return term && p.needs(b, u)
	})
}

// early returns the nodes that only results and updates read, each with the node that it can follow. That is the last
// one that it reads, or the last reader of the param that it updates.
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
			if made := p.lastMade(last); made != 0 { // the added term moves with its sum
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

// lastMade returns the last input of v that is not a param, or 0.
func (p *planner) lastMade(v ir.Value) ir.Value {
	last := ir.Value(0)
	for _, in := range p.g.Node(v).In {
		if b, _ := p.base(in); p.g.Node(b).Op != ir.Param {
			last = max(last, b)
		}
	}
	return last
}
