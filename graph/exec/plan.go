package exec

import (
	"fmt"
	"slices"
	"sort"

	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// align is the alignment of values in the arena: a cache line, and what a GPU
// loads in one piece.
const align = 64

// Update writes a value into a parameter when a program ends: state that
// lives from run to run (optimizer moments, adapters, key-value caches).
// Where the operation that makes the value can work in place, and nothing
// reads the old one later, no copy is made.
type Update struct {
	Param string
	Value ir.Value
	// Accumulate adds Value to the parameter's contents. Value is computed
	// whole before it is added, to the bit as it would be alone: a sum over
	// runs is the left fold of what each run gives, ((p+v0)+v1)+…
	Accumulate bool
}

// Result is a value that the caller gets in a buffer called Name.
type Result struct {
	Name  string
	Value ir.Value
}

// Spec says what a program computes.
type Spec struct {
	Results []Result
	Updates []Update
	// Store is the type that activations and tables of f32 may lie in memory as,
	// bfloat16; the zero value is never. Stores says where the device takes it;
	// Compile asks the device itself where it is nil.
	Store  tensor.DType
	Stores Stores
	// Spare is the part of the arena, one in so many, that may be spent on values
	// that stay as they are all the same; 0 is none.
	Spare int
	// StoreAll lets params, results and values of any shape lie so too, wherever
	// the device takes it: the oracle of what a device stores.
	StoreAll bool
	// KeepSums has values be added as formulas have it: none becomes the addend of a
	// product, which would begin with it, and products stay apart. What a value is
	// rounded to then depends on its formula alone, and not on what else reads the
	// products.
	KeepSums bool
	// NoReuse gives every value memory of its own: the oracle of the memory plan.
	NoReuse bool
	// NoFuse skips fusion: the oracle of the rewrites.
	NoFuse bool
}

// Supports tells whether a device runs a composite itself.
type Supports func(op ir.Op, attr any, in []ir.Type) bool

// Plan turns the graph into a program for a device: it fuses, lowers and
// simplifies the graph, puts its nodes in order, and gives every value a place.
func Plan(g *ir.Graph, spec Spec, supports Supports) (*ir.Program, error) {
	if err := g.Err(); err != nil {
		return nil, err
	}
	roots := make([]ir.Value, 0, len(spec.Results)+len(spec.Updates))
	for _, r := range spec.Results {
		roots = append(roots, r.Value)
	}
	for _, u := range spec.Updates {
		roots = append(roots, u.Value)
	}
	if slices.Contains(roots, 0) {
		return nil, fmt.Errorf("exec: a result or an update has no value")
	}
	g, roots, err := lower(g, roots, spec, supports)
	if err != nil {
		return nil, err
	}
	if roots, err = accumulate(g, roots, spec); err != nil {
		return nil, err
	}
	p := &planner{g: g, spec: spec, roots: roots, prog: &ir.Program{Bounds: g.Bounds}, dims: g.MaxDims()}
	p.order()
	p.store()
	if err := p.arguments(); err != nil {
		return nil, err
	}
	p.place()
	p.emit()
	if err := p.prog.Verify(); err != nil {
		return nil, fmt.Errorf("exec: the plan is wrong: %w", err)
	}
	p.prog.IndexArgs()
	return p.prog, nil
}

// lower runs the passes over the graph until every composite in it is one
// that the device runs.
func lower(g *ir.Graph, roots []ir.Value, spec Spec, supports Supports) (*ir.Graph, []ir.Value, error) {
	var err error
	if !spec.NoFuse {
		if g, roots, err = rewrite(g, roots, fused); err == nil {
			g, roots, err = mergeLoss(g, roots)
		}
	}
	for err == nil {
		lowered := false
		g, roots, err = rewrite(g, roots, func(r *rewriter, v ir.Value, n *ir.Node, in []ir.Value) []ir.Value {
			if !n.Op.IsComposite() {
				return nil
			}
			types := make([]ir.Type, len(in))
			for i, x := range in {
				types[i] = r.new.Type(x)
			}
			if supports != nil && supports(n.Op, n.Attr, types) {
				return nil
			}
			lowered = true
			return ir.Def(n.Op).Decompose(r.new, n.Attr, in)
		})
		if !lowered {
			break
		}
	}
	if err == nil && !spec.NoFuse {
		g, roots, err = rewrite(g, roots, sink)
	}
	// Twice, since a fold may open the way for another.
	for i := 0; i < 2 && err == nil && !spec.NoFuse; i++ {
		g, roots, err = rewrite(g, roots, canonical(spec.KeepSums))
	}
	if err == nil {
		g, roots, err = rewrite(g, roots, func(*rewriter, ir.Value, *ir.Node, []ir.Value) []ir.Value { return nil })
	}
	return g, roots, err
}

// accumulate puts the sums of the updates that accumulate into the graph. It
// comes behind canonical form, which would make the running sum the addend of
// a product: one whose k is cut then adds its parts to it one by one.
func accumulate(g *ir.Graph, roots []ir.Value, spec Spec) ([]ir.Value, error) {
	for i, u := range spec.Updates {
		if v := &roots[len(spec.Results)+i]; u.Accumulate {
			*v = g.Add(g.Param(u.Param, g.Type(*v)), *v)
		}
	}
	if err := g.Err(); err != nil {
		return nil, fmt.Errorf("exec: %w", err)
	}
	return roots, nil
}

// allocation is the memory of a value: an argument, or a stretch of the arena.
type allocation struct {
	arg         int // -1: arena
	offset      int
	size        int
	first, last int // launches that write it first and read it last
}

type planner struct {
	g     *ir.Graph
	spec  Spec
	roots []ir.Value
	prog  *ir.Program
	dims  []int

	args        map[string]int
	launch      []ir.Value                 // nodes in the order of their launches
	stored      map[ir.Value][]bool        // of a node's outputs: it lies as spec.Store
	allocations map[ir.Value][]*allocation // of a node's outputs
	reads       map[ir.Value]map[int]int   // node → output → last launch that reads it
	copies      []copied
}

// copied is a value that is copied when all launches are done.
type copied struct {
	from, to *allocation
	t        ir.Type
	store    tensor.DType
}

// arguments lists the params that are read and the buffers that are written.
func (p *planner) arguments() error {
	p.args = map[string]int{}
	add := func(a ir.Arg) int {
		p.prog.Args = append(p.prog.Args, a)
		p.args[a.Name] = len(p.prog.Args) - 1
		return len(p.prog.Args) - 1
	}
	for v := 1; v < len(p.g.Nodes); v++ {
		if n := &p.g.Nodes[v]; n.Op == ir.Param {
			add(ir.Arg{Name: n.Attr.(ir.ParamAttr).Name, Type: n.Outs[0], Store: p.storeOut(ir.Value(v), 0)})
		}
	}
	for i, r := range p.spec.Results {
		if _, ok := p.args[r.Name]; ok {
			return fmt.Errorf("exec: the result %q has the name of another argument", r.Name)
		}
		add(ir.Arg{Name: r.Name, Type: p.g.Type(p.roots[i]), Store: p.storeOf(p.roots[i]), Written: true})
	}
	for i, u := range p.spec.Updates {
		root := p.roots[len(p.spec.Results)+i]
		t := p.g.Type(root)
		j, ok := p.args[u.Param]
		if !ok {
			j = add(ir.Arg{Name: u.Param, Type: t, Store: p.storeOf(root)})
		}
		if a := &p.prog.Args[j]; !a.Type.Equal(t) || a.Written {
			return fmt.Errorf("exec: the update of %q is %v, expected %v once", u.Param, t, a.Type)
		}
		p.prog.Args[j].Written = true
	}
	return nil
}

// base gives the node that makes v, and which of its outputs v is: reshapes
// and outputs are other names of the same memory.
func (p *planner) base(v ir.Value) (ir.Value, int) {
	for {
		switch n := p.g.Node(v); n.Op {
		case ir.Reshape, ir.Detach:
			v = n.In[0]
		case ir.Out:
			return n.In[0], n.Attr.(ir.OutAttr).Index
		default:
			return v, 0
		}
	}
}

// allocationOf finds the memory of v.
func (p *planner) allocationOf(v ir.Value) *allocation {
	b, i := p.base(v)
	return p.allocations[b][i]
}

// place gives every value its memory: a written argument where it can be made
// there at once, an input's memory where its operation works in place, else a
// stretch of the arena.
func (p *planner) place() {
	p.allocations = map[ir.Value][]*allocation{}
	end := len(p.launch)
	p.reads = map[ir.Value]map[int]int{}
	read := func(v ir.Value, at int) {
		b, i := p.base(v)
		if p.reads[b] == nil {
			p.reads[b] = map[int]int{}
		}
		p.reads[b][i] = max(p.reads[b][i], at)
	}
	for at, v := range p.launch {
		for _, in := range p.g.Node(v).In {
			read(in, at)
		}
	}
	targets := p.targets()
	for _, t := range targets { // those that are not made in their place are copied when the program ends
		read(t.value, end)
	}
	for v := ir.Value(1); int(v) < len(p.g.Nodes); v++ {
		if n := p.g.Node(v); n.Op == ir.Param {
			p.allocations[v] = []*allocation{{arg: p.args[n.Attr.(ir.ParamAttr).Name], last: p.reads[v][0]}}
		}
	}
	var arena []*allocation
	for at, v := range p.launch {
		n := p.g.Node(v)
		outs := make([]*allocation, len(n.Outs))
		for i, t := range n.Outs {
			last := max(at, p.reads[v][i])
			if s := p.direct(v, i, at, targets); s != nil {
				outs[i] = s
				continue
			}
			if s := p.inPlace(v, i, at, outs); s != nil {
				s.last = max(s.last, last)
				outs[i] = s
				continue
			}
			outs[i] = &allocation{arg: -1, size: aligned(p.bytes(t, p.storeOut(v, i))), first: at, last: last}
			if p.spec.NoReuse {
				outs[i].last = end
			}
			arena = append(arena, outs[i])
		}
		p.allocations[v] = outs
	}
	p.prog.Arena = layOut(append(arena, p.copyOut(targets, end)...))
}

// copyOut lists the copies of values into the arguments that they could not be made
// in, in an order in which an argument is read before it is written over. Params
// that exchange their contents need memory in passing, which it returns.
func (p *planner) copyOut(targets []*target, end int) (temps []*allocation) {
	var waiting []copied
	for _, t := range targets {
		if from := p.allocationOf(t.value); !t.direct && from.arg != t.arg {
			waiting = append(waiting, copied{from, &allocation{arg: t.arg}, p.g.Type(t.value), p.storeOf(t.value)})
		}
	}
	readers := func(arg int) (is []int) {
		for i, c := range waiting {
			if c.from.arg == arg {
				is = append(is, i)
			}
		}
		return is
	}
	for len(waiting) > 0 {
		next := slices.IndexFunc(waiting, func(c copied) bool { return len(readers(c.to.arg)) == 0 })
		if next < 0 { // a circle: what the first would write over is kept
			for _, i := range readers(waiting[0].to.arg) {
				c := &waiting[i]
				temp := &allocation{arg: -1, size: aligned(p.bytes(c.t, c.store)), first: end, last: end}
				p.copies = append(p.copies, copied{c.from, temp, c.t, c.store})
				temps, c.from = append(temps, temp), temp
			}
			next = 0
		}
		p.copies = append(p.copies, waiting[next])
		waiting = slices.Delete(waiting, next, next+1)
	}
	return temps
}

// bytes is the memory of a value of type t that is stored as store.
func (p *planner) bytes(t ir.Type, store tensor.DType) int {
	return ir.Ref{Type: t, Store: store}.Bytes(p.dims)
}

// aligned is the room that n bytes take in the arena.
func aligned(n int) int { return (n + align - 1) / align * align }

// target is a written argument and the value that belongs into it.
type target struct {
	value  ir.Value
	arg    int
	param  ir.Value // the param that is updated, or zero for a result
	direct bool
}

func (p *planner) targets() []*target {
	var ts []*target
	for i, r := range p.spec.Results {
		ts = append(ts, &target{value: p.roots[i], arg: p.args[r.Name]})
	}
	for i, u := range p.spec.Updates {
		v, _ := p.g.Lookup(u.Param)
		ts = append(ts, &target{value: p.roots[len(p.spec.Results)+i], arg: p.args[u.Param], param: v})
	}
	return ts
}

// direct gives output i of node v the argument that it is copied to otherwise, if
// it can be made there at once. A result always can. An update can if nothing
// reads the old contents from then on, except v itself where it works in place.
func (p *planner) direct(v ir.Value, i, at int, targets []*target) *allocation {
	for _, t := range targets {
		if b, j := p.base(t.value); t.direct || b != v || j != i {
			continue
		}
		if t.param != 0 {
			last := p.allocations[t.param][0].last
			over := p.over(v, i)
			ownRead := last == at && over >= 0 && p.isParam(p.g.Node(v).In[over], t.param) && p.countReads(v, t.param) == 1
			if _, read := p.reads[t.param]; read && last >= at && !ownRead {
				continue
			}
		}
		t.direct = true
		return &allocation{arg: t.arg, last: len(p.launch)}
	}
	return nil
}

func (p *planner) isParam(v, param ir.Value) bool {
	b, _ := p.base(v)
	return b == param
}

func (p *planner) countReads(v, param ir.Value) int {
	n := 0
	for _, in := range p.g.Node(v).In {
		if p.isParam(in, param) {
			n++
		}
	}
	return n
}

func (p *planner) over(v ir.Value, i int) int {
	n := p.g.Node(v)
	if f := ir.Def(n.Op).InPlace; f != nil {
		return f(n.Attr, i)
	}
	return -1
}

// inPlace gives output i of v the memory of the input that it may overwrite,
// if that input is in the arena, as large, read by nothing later and by v once.
func (p *planner) inPlace(v ir.Value, i, at int, taken []*allocation) *allocation {
	n := p.g.Node(v)
	over := p.over(v, i)
	if over < 0 || p.spec.NoReuse {
		return nil
	}
	s := p.allocationOf(n.In[over])
	in := p.g.Type(n.In[over])
	if s.arg >= 0 || s.last != at || in.Bytes(p.dims) != n.Outs[i].Bytes(p.dims) || p.storeOf(n.In[over]) != p.storeOut(v, i) || slices.Contains(taken, s) {
		return nil
	}
	for j, x := range n.In {
		if j != over && p.allocationOf(x) == s {
			return nil
		}
	}
	return s
}

// layOut gives the allocations offsets so that those alive at the same time do not
// overlap, the largest first, each as low as it fits, and returns the size.
func layOut(allocations []*allocation) int {
	order := slices.Clone(allocations)
	sort.SliceStable(order, func(i, j int) bool { return order[i].size > order[j].size })
	var placed []*allocation // by offset
	total := 0
	for _, s := range order {
		s.offset = 0
		for _, q := range placed {
			if q.first > s.last || s.first > q.last || q.offset+q.size <= s.offset {
				continue
			}
			if s.offset+s.size <= q.offset {
				break
			}
			s.offset = q.offset + q.size
		}
		at, _ := slices.BinarySearchFunc(placed, s.offset, func(q *allocation, off int) int { return q.offset - off })
		placed = slices.Insert(placed, at, s)
		total = max(total, s.offset+s.size)
	}
	return total
}

func (p *planner) ref(v ir.Value) ir.Ref {
	return makeRef(p.allocationOf(v), p.g.Type(v), p.storeOf(v))
}

func makeRef(s *allocation, t ir.Type, store tensor.DType) ir.Ref {
	if s.arg >= 0 {
		return ir.Ref{Space: ir.SpaceArg, Index: s.arg, Type: t, Store: store}
	}
	return ir.Ref{Space: ir.SpaceArena, Offset: s.offset, Type: t, Store: store}
}

func (p *planner) emit() {
	for _, v := range p.launch {
		n := p.g.Node(v)
		l := ir.Launch{Op: n.Op, Attr: n.Attr}
		for _, in := range n.In {
			l.In = append(l.In, p.ref(in))
		}
		for i, t := range n.Outs {
			l.Out = append(l.Out, makeRef(p.allocations[v][i], t, p.storeOut(v, i)))
		}
		p.prog.Launches = append(p.prog.Launches, l)
	}
	for _, c := range p.copies {
		p.prog.Launches = append(p.prog.Launches, ir.Launch{
			Op: ir.Reshape, Attr: ir.ReshapeTo(c.t.Shape),
			In: []ir.Ref{makeRef(c.from, c.t, c.store)}, Out: []ir.Ref{makeRef(c.to, c.t, c.store)},
		})
	}
}
