package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// elementwise is a kernel that computes each element of its outputs from the elements of its inputs at the same index.
// Parameters that are outputs and inputs are in both lists.
type elementwise struct {
	name, signature, doc string
	in, out              []string
	unroll               [2]int // registers per iteration with AVX2, AVX-512

	// setup emits the code before the loop and returns the formula.
	setup func(v *isa) func(x []val) []val
}

func (e elementwise) emit(v *isa) {
	v.text(e.name, e.signature, e.doc)
	l := loop{isa: v, n: length(e.out[0]), at: GP64()}
	bases := map[string]reg.GPVirtual{}
	for _, p := range append(append([]string{}, e.out...), e.in...) {
		if _, ok := bases[p]; !ok {
			bases[p] = base(p)
		}
	}
	formula := e.setup(v)
	l.run(e.unroll[v.index()], func(n int, mask reg.Register) {
		var x []val
		for _, p := range e.in {
			x = append(x, v.load(l.mem(bases[p]), n, mask))
		}
		for i, y := range formula(x) {
			v.store(y, l.mem(bases[e.out[i]]), mask)
		}
	})
	end()
}

func (v *isa) index() int {
	if v == avx512 {
		return 1
	}
	return 0
}

// base and length load the parts of a slice parameter.
func base(name string) reg.GPVirtual {
	r := GP64()
	Load(Param(name).Base(), r)
	return r
}

func length(name string) reg.GPVirtual {
	r := GP64()
	Load(Param(name).Len(), r)
	return r
}

// loop iterates over n elements; at is the first one not done.
type loop struct {
	*isa
	n, at reg.GPVirtual
}

// mem returns the current address in the slice that starts at base.
func (l loop) mem(base reg.GPVirtual) Mem {
	return Mem{Base: base, Index: l.at, Scale: 4}
}

// run emits body for unroll registers at a time, then for single registers, then for the rest under a mask.
func (l loop) run(unroll int, body func(n int, mask reg.Register)) {
	XORQ(l.at, l.at)
	for _, n := range []int{unroll, 1} {
		step := n * l.lanes
		loop, done := label("loop", n), label("done", n)
		SUBQ(I32(step), l.n)
		JLT(LabelRef(done))
		Label(loop)
		body(n, nil)
		ADDQ(I32(step), l.at)
		SUBQ(I32(step), l.n)
		JGE(LabelRef(loop))
		Label(done)
		ADDQ(I32(step), l.n)
		if unroll == 1 {
			break
		}
	}
	JZ(LabelRef("end"))
	body(1, l.mask(l.n))
	Label("end")
}

func label(name string, n int) string {
	return name + string(rune('0'+n))
}

func one(f func(x []val) val) func(x []val) []val {
	return func(x []val) []val { return []val{f(x)} }
}
