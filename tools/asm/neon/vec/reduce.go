package main

import (
	"math"
	"slices"
)

// sums is the number of partial sums of a reduction: element i belongs to sum
// i%sums. It is the constant lanes of package vec.
const sums = 32

// reduction is a kernel that reduces its inputs to one float.
type reduction struct {
	name, signature, doc string
	in, out              []string
	side                 int // number of accumulators
	start                func(k *kernel) val
	fold                 func(k *kernel, a, b val) val

	// setup emits the code before the loop and returns the step, which updates the accumulators and returns the
	// outputs. A mask, if not nil, clears lanes without an element, which are read as zeros.
	setup func(k *kernel) func(acc val, x []val, mask val) []val
}

func (r reduction) emit() {
	k := text(r.name, r.signature, r.doc)
	first := slices.Concat(r.out, r.in)[0]
	l := loop{kernel: k, n: k.param(first + "_len"), at: map[string]R{}}
	for _, p := range slices.Concat(r.out, r.in) {
		l.slice(p)
	}
	step := r.setup(k)
	acc := make(val, sums/lanes)
	start := r.start(k)
	for i := range acc {
		acc[i] = k.copy(start, 1)[0]
	}
	body := func(acc val, disp int) {
		var x []val
		for _, p := range r.in {
			v := k.fresh(len(acc))
			for i := range v {
				k.LoadVec(v[i].reg, l.at[p], disp+16*i)
			}
			x = append(x, v)
		}
		for o, y := range step(acc, x, nil) {
			for i := range y {
				k.StoreVec(y[i].reg, l.at[r.out[o]], disp+16*i)
			}
		}
	}
	k.Go("SUBS $%d, %v", sums, l.n)
	k.Branch("BLT", "tail")
	k.Align()
	k.Label("loop")
	for i := 0; i < len(acc); i += r.side {
		body(acc[i:i+r.side], 16*i)
	}
	l.advance(sums)
	k.Go("SUBS $%d, %v", sums, l.n)
	k.Branch("BGE", "loop")
	k.Label("tail")
	k.Go("ADD $%d, %v", sums, l.n)
	// The remaining registers go to the accumulators in order: always to the first, since the accumulators are rotated
	// by one each time. The rotation does not change which of them are added to each other.
	k.Label("turn")
	k.Go("SUBS $%d, %v", lanes, l.n)
	k.Branch("BLT", "part")
	body(acc[:1], 0)
	l.advance(lanes)
	save := k.copy(acc[:1], 1)
	for i := range acc[1:] {
		k.Move(acc[i].reg, acc[i+1].reg)
	}
	k.Move(acc[len(acc)-1].reg, save[0].reg)
	k.Branch("B", "turn")
	k.Label("part")
	k.Go("ADDS $%d, %v", lanes, l.n)
	k.Branch("BEQ", "fold")
	r.part(k, l, step, acc[:1])
	k.Label("fold")
	k.Return(k.foldLanes(acc, r.fold))
	k.Ret()
}

// part emits the step for the last elements, fewer than a register holds.
func (r reduction) part(k *kernel, l loop, step func(acc val, x []val, mask val) []val, acc val) {
	var x []val
	for _, p := range r.in {
		v := k.fresh(1)
		k.Zero(v[0].reg)
		k.some(l.at[p], l.n, func(i int, at R) { k.LoadLane(v[0].reg, i, at) })
		x = append(x, v)
	}
	for o, y := range step(acc, x, k.mask(l.n)) {
		k.some(l.at[r.out[o]], l.n, func(i int, at R) { k.StoreLane(y[0].reg, i, at) })
	}
}

// some emits each for the lanes 0 to n−1, n < 4, with an address that it advances.
func (k *kernel) some(from, n R, each func(i int, at R)) {
	end := k.Fresh("some")
	k.Go("MOVD %v, %v", from, k.temp)
	for i := range lanes - 1 {
		k.Go("CMP $%d, %v", i, n)
		k.Branch("BEQ", end)
		each(i, k.temp)
	}
	k.Label(end)
}

// mask selects the first n lanes.
func (k *kernel) mask(n R) val {
	count, m := k.Vec(), k.counting()
	k.SpreadWord(count, n)
	k.Greater(m, count, m)
	return val{{m, -1}}
}

// counting returns a register with 0, 1, 2, 3.
func (k *kernel) counting() V {
	r := k.Vec()
	for half, word := range []uint64{1 << 32, 3<<32 | 2} {
		k.Go("MOVD $%#x, %v", word, k.temp)
		k.PutDouble(r, half, k.temp)
	}
	return r
}

// foldLanes reduces accumulators by halves: the upper half of all lanes onto the lower, until one is left.
func (k *kernel) foldLanes(acc val, f func(k *kernel, a, b val) val) V {
	for len(acc) > 1 {
		h := len(acc) / 2
		acc = f(k, acc[:h], acc[h:])
	}
	upper := k.fresh(1)
	k.Transpose642(upper[0].reg, acc[0].reg, acc[0].reg)
	acc = f(k, acc, upper)
	return f(k, acc, val{{acc[0].reg, 1}})[0].reg
}

func reductions() {
	sum := reduction{
		start: func(k *kernel) val { return k.near(0) },
		fold:  (*kernel).add, side: 4,
	}
	kernelOf := func(name, signature, doc string, in []string, setup func(k *kernel) func(acc val, x []val, mask val) []val) {
		r := sum
		r.name, r.signature, r.doc, r.in, r.setup = name, signature, doc, in, setup
		r.emit()
	}
	step := func(f func(k *kernel, acc val, x []val)) func(k *kernel) func(acc val, x []val, mask val) []val {
		return func(k *kernel) func(acc val, x []val, mask val) []val {
			return func(acc val, x []val, _ val) []val {
				f(k, acc, x)
				return nil
			}
		}
	}
	kernelOf("sum", "x []float32) float32", "is Σ x.", []string{"x"},
		step(func(k *kernel, acc val, x []val) { k.addTo(acc, x[0]) }))
	kernelOf("sumSquares", "x []float32) float32", "is Σ x².", []string{"x"},
		step(func(k *kernel, acc val, x []val) { k.addMul(acc, x[0], x[0]) }))
	kernelOf("dot", "a, b []float32) float32", "is Σ a·b.", []string{"a", "b"},
		step(func(k *kernel, acc val, x []val) { k.addMul(acc, x[0], x[1]) }))
	kernelOf("dot3", "a, b, c []float32) float32", "is Σ (a·b)·c.", []string{"a", "b", "c"},
		step(func(k *kernel, acc val, x []val) { k.addMul(acc, k.mul(x[0], x[1]), x[2]) }))
	kernelOf("sumSquaredDeviations", "x []float32, mean float32) float32", "is Σ (x − mean)².", []string{"x"},
		func(k *kernel) func(acc val, x []val, mask val) []val {
			mean := k.copy(k.scalar("mean"), 1)
			return func(acc val, x []val, mask val) []val {
				d := k.selected(k.sub(x[0], mean), mask)
				k.addMul(acc, d, d)
				return nil
			}
		})
	reduction{
		name: "max", signature: "x []float32) float32",
		doc: "is the largest x, NaN if there is one, −Inf if x is empty.",
		in:  []string{"x"}, side: 4,
		start: func(k *kernel) val { return k.near(bits(math.Inf(-1))) },
		fold:  (*kernel).max,
		setup: func(k *kernel) func(acc val, x []val, mask val) []val {
			return func(acc val, x []val, mask val) []val {
				y := x[0]
				if mask != nil { // lanes without an element must not count as 0
					m := k.copy(mask, 1)
					k.Select(m[0].reg, y[0].reg, acc[0].reg)
					y = m
				}
				for i := range acc {
					k.FMax(acc[i].reg, acc[i].reg, y[i].reg)
				}
				return nil
			}
		},
	}.emit()
}

// addTo emits acc += x.
func (k *kernel) addTo(acc, x val) {
	for i := range acc {
		k.FAdd(acc[i].reg, acc[i].reg, x.at(i).reg)
	}
}

// selected clears the lanes of x that mask does not select.
func (k *kernel) selected(x, mask val) val {
	if mask == nil {
		return x
	}
	return k.and(x, mask)
}
