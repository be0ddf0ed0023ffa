package exec

import (
	"fmt"
	"slices"
	"sort"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// align is the alignment of values in the arena: a cache line, and the width of a GPU load.
const align = 64

// Update writes a value into a parameter at the end of a program. It is for state that lives from run to run: optimizer
// moments, adapters, KV caches. No copy is made if the operation that computes the value can work in place and nothing
// reads the old value later.
type Update struct {
	Param string
	Value ir.Value
	// Accumulate adds Value to the contents of the parameter. Value is computed completely before it is added, with the
	// same bits as alone, so that a sum over runs is the left fold of the results of the runs, ((p+v0)+v1)+…
	Accumulate bool
}

// Result is a value that the program writes to the caller's buffer called Name.
type Result struct {
	Name  string
	Value ir.Value
}

// Spec describes the results of a program and the options for planning it.
type Spec struct {
	Results []Result
	Updates []Update
	// Store is the type, bfloat16, in which activations and tables of f32 may be stored; the zero value disables it.
	// Stores reports which values the device can store so; if it is nil, Compile asks the device.
	Store  tensor.DType
	Stores Stores
	// Spare allows one part in Spare of the arena for values that keep full precision although they could be stored
	// narrower. Zero means none.
	Spare int
	// FixedSizes declares that the rows of activations have no bounded axis, as those of images whose size is fixed. Computed
	// values of any shape then count as activations. It is not for programs with gradients of parameters.
	FixedSizes bool
	// StoreAll also stores params, results and values of any shape in the narrower type, if the device supports it.
	// Tests of stored values use it.
	StoreAll bool
	// KeepSums adds values in the order of the formulas. No value becomes the addend of a product, which would start
	// with it, no later factor becomes a factor of its terms, and products are not merged. The rounding of a value then
	// depends only on its formula, not on other readers of the products.
	KeepSums bool
	// NoReuse gives every value separate memory. Tests compare the memory plan with it.
	NoReuse bool
	// NoFuse skips fusion. Tests compare rewritten graphs with it.
	NoFuse bool
}

// Supports reports whether a device runs a composite itself.
type Supports func(op ir.Op, attr any, in []ir.Type) bool

// Plan compiles the graph to a program for a device: it fuses, lowers and simplifies the graph, orders its nodes, and
// assigns memory to every value.
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

// lower runs the passes over the graph until it has only composites that the device supports.
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
	// Run it twice, since one fold may enable another.
	for i := 0; i < 2 && err == nil && !spec.NoFuse; i++ {
		g, roots, err = rewrite(g, roots, canonical(spec.KeepSums))
	}
	if err == nil && !spec.NoFuse && supports != nil {
		g, roots, err = rewrite(g, roots, narrow(supports))
	}
	if err == nil {
		g, roots, err = rewrite(g, roots, func(*rewriter, ir.Value, *ir.Node, []ir.Value) []ir.Value { return nil })
	}
	return g, roots, err
}

// accumulate appends the sums of accumulating updates. It runs after canonical, which would make the running sum the
// addend of a product; a product that is split along k would then add its parts to the sum one by one.
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

// allocation is the memory of a value: an argument, or a range of the arena.
type allocation struct {
	arg         int // -1: arena
	offset      int
	size        int
	first, last int // first launch that writes it, last launch that reads it
}

type planner struct {
	g     *ir.Graph
	spec  Spec
	roots []ir.Value
	prog  *ir.Program
	dims  []int

	args        map[string]int
	launch      []ir.Value                 // nodes in launch order
	stored      map[ir.Value][]bool        // by output of a node: it is stored as spec.Store
	allocations map[ir.Value][]*allocation // by output of a node
	reads       map[ir.Value]map[int]int   // node → output → last launch that reads it
	copies      []copied
}

// copied is a value that is copied after all launches.
type copied struct {
	from, to *allocation
	t        ir.Type
	store    tensor.DType
}

// arguments collects the params that are read and the buffers that are written.
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

// base returns the node that computes v and the index of the output. Reshapes and outputs are aliases of the same
// memory.
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

// allocationOf returns the memory of v.
func (p *planner) allocationOf(v ir.Value) *allocation {
	b, i := p.base(v)
	return p.allocations[b][i]
}

// place assigns memory to every value: a written argument if the value can be computed there directly, the memory of an
// input if the operation works in place, else a range of the arena.
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
	p.hold()
	targets := p.targets()
	for _, t := range targets { // targets that are not computed in place are copied at the end of the program
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

// copyOut plans the copies of values into arguments in which they could not be computed directly. The copies are
// ordered so that an argument is read before it is overwritten. Params that swap their contents need temporary memory,
// which copyOut returns.
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
		if next < 0 { // a cycle: save what the first copy would overwrite
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

// bytes returns the size of a value of type t that is stored as store.
func (p *planner) bytes(t ir.Type, store tensor.DType) int {
	return ir.Ref{Type: t, Store: store}.Bytes(p.dims)
}

// aligned rounds n bytes up to the alignment of the arena.
func aligned(n int) int { return (n + align - 1) / align * align }

// target is a written argument and its value.
type target struct {
	value  ir.Value
	arg    int
	param  ir.Value // the updated param, or zero for a result
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

// direct returns the argument into which output i of node v would be copied, if the value can be computed there
// directly. A result always can. An update can if nothing later reads the old contents, except v itself if it works in
// place.
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

// inPlace returns the memory of the input that output i of v may overwrite, or nil. The input must be in the arena,
// have the same size, and be read by v once and by nothing later.
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

// layOut assigns offsets to the allocations, so that ones alive at the same time do not overlap. It places the largest
// first, each at the lowest offset that fits, and returns the total size.
func layOut(allocations []*allocation) int {
	order := slices.Clone(allocations)
	sort.SliceStable(order, func(i, j int) bool { return order[i].size > order[j].size })
	var placed []*allocation // ordered by offset
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
