package exec

import (
	"slices"

	"github.com/lorafuse/lorafuse/internal/ir"
)

// room is memory in the arena that several values use in turn, each computed in place of the previous one. It is
// occupied from the launch that computes the first value to the last launch that reads any of them.
type room struct {
	outs        []output
	first, last int
	bytes       int
	sum         bool // one of the values is a running sum: read by others, and then added to
}

// output is output i of node v.
type output struct {
	v ir.Value
	i int
}

// spare restores full precision to running sums if this does not enlarge the arena by more than spec.Spare allows. Each
// layer reads such a value and adds to it, as to the gradient of it, so that errors accumulate from layer to layer. Other
// values stay narrow even if there is memory for them, because reading and writing them takes time.
func (p *planner) spare() {
	rooms := p.rooms()
	live := make([]int, len(p.launch)+1) // bytes in use during each launch
	for _, r := range rooms {
		r.add(live)
	}
	limit := slices.Max(live)
	if p.spec.Spare > 0 {
		limit += limit / p.spec.Spare
	}
	for _, r := range rooms {
		// A stored value takes half of its bytes, so full precision needs the same number again.
		if !r.sum || !p.storedOut(r.outs[0]) || slices.Max(live[r.first:r.last+1])+r.bytes > limit {
			continue
		}
		for _, o := range r.outs {
			p.stored[o.v][o.i] = false
		}
		r.add(live)
	}
}

func (r *room) add(live []int) {
	for t := r.first; t <= r.last; t++ {
		live[t] += r.bytes
	}
}

func (p *planner) storedOut(o output) bool { return p.stored[o.v][o.i] }

// rooms returns the rooms of the arena in launch order. Values in arguments (results, updates, tables) belong to none.
func (p *planner) rooms() []*room {
	place := map[ir.Value]int{} // of a launch
	for at, v := range p.launch {
		place[v] = at
	}
	last, readers := map[output]int{}, p.readers()
	for o, list := range readers {
		last[o] = place[list[len(list)-1]]
	}
	outside := map[output]bool{}
	for _, v := range p.roots {
		b, i := p.base(v)
		outside[output{b, i}] = true
	}
	var all []*room
	of := map[output]*room{}
	for at, v := range p.launch {
		n, sum := p.g.Node(v), false
		for j, x := range n.In {
			b, i := p.base(x)
			if o := (output{b, i}); isAddend(n, j) && len(readers[o]) > 1 {
				sum = true
				if of[o] != nil {
					of[o].sum = true
				}
			}
		}
		if n.Op == ir.UpdateRows {
			continue
		}
		for i, t := range n.Outs {
			o, bytes := output{v, i}, p.bytes(t, p.storeOut(v, i))
			if outside[o] {
				continue
			}
			r := of[p.overwrites(o, last, at)]
			if r == nil || r.bytes != bytes || r.last > at || p.storedOut(r.outs[0]) != p.storedOut(o) {
				r = &room{first: at, bytes: bytes}
				all = append(all, r)
			}
			r.outs, r.last, r.sum = append(r.outs, o), max(at, last[o]), r.sum || sum
			of[o] = r
		}
	}
	return all
}

// overwrites returns the input that output o is computed in place of: one whose last reader is launch at. It returns
// the zero output if there is none.
func (p *planner) overwrites(o output, last map[output]int, at int) output {
	if over := p.over(o.v, o.i); over >= 0 {
		b, i := p.base(p.g.Node(o.v).In[over])
		if x := (output{b, i}); last[x] == at {
			return x
		}
	}
	return output{}
}

// isAddend reports whether a launch adds something to input j.
func isAddend(n *ir.Node, j int) bool {
	switch a := n.Attr.(type) {
	case ir.GemmAttr:
		return j == a.C()
	case ir.BinaryAttr:
		return a.Fn == ir.Add
	}
	return false
}
