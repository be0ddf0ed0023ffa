package main

import (
	"fmt"
	"slices"
)

// elementwise is a kernel that computes each element of its outputs from the elements of its inputs at the same index.
// Parameters that are outputs and inputs are in both lists.
type elementwise struct {
	name, signature, doc string
	in, out              []string
	unroll               int // registers per iteration

	// setup emits the code before the loop and returns the formula.
	setup func(k *kernel) func(x []val) []val
}

func (e elementwise) emit() {
	k := text(e.name, e.signature, e.doc)
	l := loop{kernel: k, n: k.param(e.out[0] + "_len"), at: map[string]R{}}
	for _, p := range slices.Concat(e.out, e.in) {
		l.slice(p)
	}
	formula := e.setup(k)
	l.run(e.unroll, func(n int, load func(d V, r R, at int), store func(s V, r R, at int)) {
		var x []val
		for _, p := range e.in {
			v := k.fresh(n)
			for i := range v {
				load(v[i].reg, l.at[p], 16*i)
			}
			x = append(x, v)
		}
		for o, y := range formula(x) {
			for i := range y {
				store(y[i].reg, l.at[e.out[o]], 16*i)
			}
		}
	})
	k.Ret()
}

// loop iterates over n elements of some slices.
type loop struct {
	*kernel
	n  R            // remaining elements
	at map[string]R // addresses in the slices
}

// slice adds a parameter.
func (l *loop) slice(name string) {
	if _, ok := l.at[name]; !ok {
		l.at[name] = l.param(name + "_base")
	}
}

// advance advances all addresses, in a fixed order.
func (l *loop) advance(elements int) {
	var rs []R
	for _, r := range l.at {
		rs = append(rs, r)
	}
	slices.Sort(rs)
	for _, r := range rs {
		l.Go("ADD $%d, %v", 4*elements, r)
	}
}

// run emits body for unroll registers at a time, then for single registers, then for single elements padded with zeros.
func (l *loop) run(unroll int, body func(n int, load func(d V, r R, at int), store func(s V, r R, at int))) {
	for _, elements := range slices.Compact([]int{unroll * lanes, lanes, 1}) {
		again, done := fmt.Sprintf("loop%d", elements), fmt.Sprintf("done%d", elements)
		l.Go("SUBS $%d, %v", elements, l.n)
		l.Branch("BLT", done)
		if elements > 1 {
			l.Align()
		}
		l.Label(again)
		if elements == 1 {
			body(1, l.LoadWord, l.StoreWord)
		} else {
			body(elements/lanes, l.LoadVec, l.StoreVec)
		}
		l.advance(elements)
		l.Go("SUBS $%d, %v", elements, l.n)
		l.Branch("BGE", again)
		l.Label(done)
		if elements > 1 {
			l.Go("ADD $%d, %v", elements, l.n)
		}
	}
}

// single adapts a formula with one output.
func single(f func(x []val) val) func(x []val) []val {
	return func(x []val) []val { return []val{f(x)} }
}

// fixed adapts a formula that needs nothing before the loop to a setup.
func fixed(f func(k *kernel, x []val) []val) func(k *kernel) func(x []val) []val {
	return func(k *kernel) func(x []val) []val {
		return func(x []val) []val { return f(k, x) }
	}
}
