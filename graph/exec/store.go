package exec

import (
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// Stores reports whether a device can read or write a value of a launch in a narrower type than it is computed in; see
// backend.Device.
type Stores func(op ir.Op, attr any, in []ir.Type, at ir.Place, as tensor.DType) bool

// storedRows is the number of rows up to which a value is never stored narrower, because it would gain too little.
// Decoding a token takes one row.
const storedRows = 8

// store selects the values that are stored in the narrower type spec.Store: activations, and params whose rows are
// updated, such as KV caches. The launch that computes the value and all its readers must support it. Trained
// parameters, their gradients and results are never stored narrower.
func (p *planner) store() {
	p.stored = map[ir.Value][]bool{}
	if p.spec.Store == tensor.Invalid || p.spec.Stores == nil {
		return
	}
	for v := ir.Value(1); int(v) < len(p.g.Nodes); v++ {
		n := p.g.Node(v)
		if b, _ := p.base(v); b != v {
			continue
		}
		p.stored[v] = make([]bool, len(n.Outs))
		for i, t := range n.Outs {
			p.stored[v][i] = ir.Storable(t, p.spec.Store) && (p.spec.StoreAll || n.Op != ir.Param && p.isActivation(t))
		}
	}
	pairs := p.updatePairs()
	for _, v := range p.launch {
		p.ask(v)
	}
	if !p.spec.StoreAll {
		for i := range p.spec.Results {
			p.deny(p.roots[i])
		}
	}
	for changed := true; changed; { // an updated param and its new value have the same type
		changed = false
		for _, x := range pairs {
			if p.isStored(x[0]) != p.isStored(x[1]) {
				p.deny(x[0])
				p.deny(x[1])
				changed = true
			}
		}
	}
	if !p.spec.StoreAll {
		p.keepTerms()
		p.spare()
	}
}

// keepTerms restores full precision to products that only an addition reads, if its sum is not stored narrower. A device
// computes such an addition with the product, without storing the latter.
func (p *planner) keepTerms() {
	readers := p.readers()
	for _, v := range p.launch {
		o := output{v, 0}
		if op := p.g.Node(v).Op; op != ir.Gemm && op != ir.RowsGemm || !p.storedOut(o) || len(readers[o]) != 1 {
			continue
		}
		sum := readers[o][0]
		if n := p.g.Node(sum); n.Op == ir.Binary && isAddend(n, 0) && !p.storedOut(output{sum, 0}) {
			p.stored[v][0] = false
		}
	}
}

// readers returns the launches that read each output, in order; a launch that reads it twice is there twice.
func (p *planner) readers() map[output][]ir.Value {
	readers := map[output][]ir.Value{}
	for _, v := range p.launch {
		for _, x := range p.g.Node(v).In {
			b, i := p.base(x)
			readers[output{b, i}] = append(readers[output{b, i}], v)
		}
	}
	return readers
}

// isActivation reports whether a value has an axis with a bound above storedRows, as rows of tokens have, or a fixed
// number of rows above it, as images have.
func (p *planner) isActivation(t ir.Type) bool {
	for _, d := range t.Shape {
		if d.Var != 0 && p.g.Bounds[d.Var].Max > storedRows {
			return true
		}
	}
	return p.spec.FixedSizes && len(t.Shape) > 1 && t.Shape[:len(t.Shape)-1].Elements(p.dims) > storedRows
}

// updatePairs returns the updated params, each with its new value: either both are stored narrower or neither. It also
// adds tables whose rows are updated to the candidates.
func (p *planner) updatePairs() (pairs [][2]ir.Value) {
	for i, u := range p.spec.Updates {
		value := p.roots[len(p.spec.Results)+i]
		param, ok := p.g.Lookup(u.Param)
		if !ok {
			if !p.spec.StoreAll {
				p.deny(value)
			}
			continue
		}
		pairs = append(pairs, [2]ir.Value{param, value})
		b, _ := p.base(value)
		if n := p.g.Node(b); !p.spec.StoreAll && (n.Op == ir.UpdateRows || n.Op == ir.ScatterRows) && p.isParam(n.In[0], param) && ir.Storable(n.Outs[0], p.spec.Store) {
			p.stored[param][0], p.stored[b][0] = true, true
		}
	}
	return pairs
}

// ask queries the device about each stored input and output of a launch, and denies the ones it does not support.
func (p *planner) ask(v ir.Value) {
	n := p.g.Node(v)
	types := make([]ir.Type, len(n.In))
	for i, x := range n.In {
		types[i] = p.g.Type(x)
	}
	for i, x := range n.In {
		if p.isStored(x) && !p.spec.Stores(n.Op, n.Attr, types, ir.Place{Index: i}, p.spec.Store) {
			p.deny(x)
		}
	}
	for i := range n.Outs {
		if p.stored[v][i] && !p.spec.Stores(n.Op, n.Attr, types, ir.Place{Out: true, Index: i}, p.spec.Store) {
			p.stored[v][i] = false
		}
	}
}

func (p *planner) isStored(v ir.Value) bool {
	b, i := p.base(v)
	return len(p.stored[b]) > i && p.stored[b][i]
}

func (p *planner) deny(v ir.Value) {
	if b, i := p.base(v); len(p.stored[b]) > i {
		p.stored[b][i] = false
	}
}

// storeOf returns the type in which v is stored, or Invalid for its own.
func (p *planner) storeOf(v ir.Value) tensor.DType {
	if p.isStored(v) {
		return p.spec.Store
	}
	return tensor.Invalid
}

// storeOut returns the type in which output i of v is stored, or Invalid for its own.
func (p *planner) storeOut(v ir.Value, i int) tensor.DType {
	if len(p.stored[v]) > i && p.stored[v][i] {
		return p.spec.Store
	}
	return tensor.Invalid
}
