package gemm

import (
	"fmt"
	"strings"
	"unsafe"
)

// product is a call as the golden file of routes names it. Its data is never read.
type product struct {
	m, n  int
	bias  bool // and added to C
	pairs []Pair

	invariant bool // the bits of a row do not depend on m
	stored    bool // asked for where values lie in bfloat16, of every set
}

// somewhere is the address of all data of these calls.
var somewhere = make([]float32, 1)

// layout is which operand of a product lies transposed, as formulas have it.
type layout struct{ ofA, ofB bool }

var (
	xWt = layout{ofB: true}            // x·Wᵀ, weights as a checkpoint has them
	dyW = layout{}                     // dy·W
	dA  = layout{ofA: true}            // dhᵀ·x
	tT  = layout{ofA: true, ofB: true} // both transposed
)

// pair is one product of k elements, of A in float32 and B of a type.
func (l layout) pair(k int, b Elem) Pair {
	data := unsafe.Pointer(&somewhere[0])
	return Pair{K: k, Alpha: 1,
		A: Matrix{Data: data, Stride: 1 << 20, Trans: l.ofA},
		B: Matrix{Data: data, Elem: b, Stride: 1 << 20, Trans: l.ofB}}
}

// call is what p computes.
func (p *product) call() *Call {
	c := &Call{M: p.m, N: p.n, C: somewhere, LDC: p.n, Accumulate: p.bias, Invariant: p.invariant, Pairs: p.pairs}
	if p.bias {
		c.Bias = somewhere
	}
	return c
}

func (p *product) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d×%d", p.m, p.n)
	for _, x := range p.pairs {
		b.WriteString(" + ")
		if x.Alpha != 1 {
			fmt.Fprintf(&b, "%v·", x.Alpha)
		}
		mark := func(m Matrix) string {
			if m.Trans {
				return m.Elem.String() + "ᵀ"
			}
			return m.Elem.String()
		}
		fmt.Fprintf(&b, "%s·%s k=%d", mark(x.A), mark(x.B), x.K)
		if x.FilterA != nil {
			b.WriteString(" filter(A)")
		}
		if x.FilterB != nil {
			b.WriteString(" filter(B)")
		}
	}
	if p.bias {
		b.WriteString(" + bias + C")
	}
	if p.invariant {
		b.WriteString(" invariant")
	}
	if p.stored {
		b.WriteString(" stored")
	}
	return b.String()
}

// routeShapes is some 280 products that lie on both sides of every threshold.
func routeShapes() (list []product) {
	add := func(m, n int, pairs ...Pair) { list = append(list, product{m: m, n: n, pairs: pairs}) }
	each := func(ms []int, do func(m int)) {
		for _, m := range ms {
			do(m)
		}
	}
	rows := []int{1, 2, 8, 9, 12, 13, 24, 25, 32, 33, 47, 48, 49, 64, 65, 127, 128, 512}
	each(rows, func(m int) { add(m, 2048, xWt.pair(2048, BF16)) })
	each(rows, func(m int) { add(m, 2048, xWt.pair(2048, F32)) })
	each([]int{1, 8, 9, 24, 25, 47, 48, 128}, func(m int) { add(m, 2048, xWt.pair(2048, F16)) })
	each([]int{1, 8, 9, 25, 64, 127, 128}, func(m int) { add(m, 2048, xWt.pair(2048, NF4)) })
	each([]int{1, 8, 9, 33, 48, 64, 65, 512}, func(m int) { add(m, 2048, dyW.pair(2048, BF16)) })
	each([]int{1, 9, 33, 48, 512}, func(m int) { add(m, 2048, dyW.pair(2048, F32)) })
	each([]int{1, 8, 9, 512}, func(m int) { add(m, 2048, dyW.pair(2048, Q8)) })
	// Of one row, the length of k and the type choose.
	for _, b := range []Elem{F32, F16, BF16} {
		each([]int{128, 129, 511, 512, 2047, 2048, 2049}, func(k int) { add(1, 512, xWt.pair(k, b)) })
	}
	each([]int{64, 100, 4096, 4160}, func(k int) { add(1, 512, xWt.pair(k, Q8)) })
	// Of several, the length of k.
	each([]int{511, 512, 1023, 1024}, func(k int) { add(9, 512, xWt.pair(k, BF16)) })
	each([]int{511, 512}, func(k int) { add(20, 512, xWt.pair(k, F32)) })
	each([]int{128, 129}, func(k int) { add(20, 512, xWt.pair(k, BF16)) })
	each([]int{128, 129}, func(k int) { add(64, 512, xWt.pair(k, F32)) })
	// And the columns.
	each([]int{7, 8, 64, 65}, func(n int) { add(4, n, xWt.pair(1024, BF16)); add(33, n, xWt.pair(1024, BF16)) })
	// An adapter beside weights: h·Bᵀ, and its gradients beside dy·W.
	for _, m := range []int{1, 4, 16, 40, 80, 512} {
		add(m, 2048, xWt.pair(2048, BF16), xWt.pair(16, F32))
	}
	each([]int{64, 65, 128, 129}, func(r int) {
		add(8, 2048, xWt.pair(2048, F32), xWt.pair(r, F32))
		add(80, 2048, xWt.pair(2048, BF16), xWt.pair(r, F32))
	})
	each([]int{1, 8, 40, 512}, func(m int) { add(m, 2048, dyW.pair(2048, BF16), dyW.pair(16, F32)) })
	each([]int{1, 8, 512}, func(m int) { add(m, 2048, xWt.pair(16, F32)) })
	each([]int{9, 70}, func(m int) { scaled := xWt.pair(2048, BF16); scaled.Alpha = 2; add(m, 2048, scaled) })
	// x·Aᵀ of an adapter, and dy·B.
	each([]int{1, 4, 7, 8, 9, 12, 13, 16, 17, 24, 32, 33, 48, 64}, func(n int) { add(512, n, xWt.pair(2048, F32)) })
	each([]int{1, 8, 9, 12, 32, 33, 63, 64, 65}, func(m int) { add(m, 16, xWt.pair(2048, F32)) })
	each([]int{9, 32, 33, 63, 64}, func(m int) { add(m, 40, xWt.pair(2048, F32)) })
	each([]int{1, 9, 32, 33, 64, 512}, func(m int) { add(m, 16, dyW.pair(2048, F32)) })
	each([]int{191, 192}, func(k int) {
		add(20, 16, dyW.pair(k, F32))
		add(100, 16, xWt.pair(k, F32))
		add(100, 16, xWt.pair(k, BF16))
	})
	// dhᵀ·x, the gradient of A, and dyᵀ·h, that of B.
	each([]int{1, 8, 9, 16, 32, 33, 64}, func(m int) { add(m, 2048, dA.pair(1024, F32)) })
	each([]int{127, 128}, func(n int) { add(16, n, dA.pair(1024, F32)) })
	each([]int{255, 256, 512, 1024}, func(k int) { add(8, 512, dA.pair(k, F32)) })
	each([]int{8, 16}, func(m int) { add(m, 2048, dA.pair(1024, BF16)); add(m, 2048, dA.pair(1024, F16)) })
	each([]int{128, 129, 2048}, func(m int) { add(m, 16, dA.pair(1024, F32)) })
	each([]int{64, 65}, func(n int) { add(2048, n, dA.pair(1024, F32)) })
	each([]int{4, 20, 200}, func(m int) { add(m, 300, tT.pair(700, F32)) })
	// What is neither, such as another type of A, and what is left out.
	for _, m := range []int{4, 20, 100} {
		half := xWt.pair(1024, BF16)
		half.A.Elem = BF16
		add(m, 300, half)
	}
	off := dyW.pair(1024, F32)
	off.Alpha = 0
	add(4, 300, off)
	add(20, 300, off, xWt.pair(1024, BF16))
	add(1, 300)
	add(64, 64, xWt.pair(64, F32))
	add(64, 64, dyW.pair(64, F32))
	add(4, 512, xWt.pair(64, F32))
	add(4, 64, dyW.pair(512, F32))
	add(40, 300, xWt.pair(1024, BF16), dyW.pair(1024, BF16))
	list = append(list, invariantShapes()...)
	list = append(list, storedShapes()...)
	for i := range list {
		list[i].bias = i%7 == 3
	}
	return list
}

// invariantShapes are products whose rows have the same bits in any company.
func invariantShapes() (list []product) {
	add := func(m, n int, pairs ...Pair) { list = append(list, product{m: m, n: n, pairs: pairs, invariant: true}) }
	for _, m := range []int{1, 2, 9, 33, 64, 65, 512} {
		add(m, 2048, xWt.pair(2048, BF16), xWt.pair(16, F32))
	}
	for _, m := range []int{1, 512} {
		add(m, 2048, xWt.pair(2048, F32))
		add(m, 2048, xWt.pair(4160, NF4))
		add(m, 2048, xWt.pair(100, Q8), xWt.pair(16, F32))
		add(m, 16, xWt.pair(2048, F32))
		add(m, 7, xWt.pair(2048, F32))
		add(m, 2048, xWt.pair(16, F32))
		add(m, 2048, dyW.pair(2048, Q8))
		add(m, 16, dyW.pair(2048, F32))
	}
	for _, m := range []int{1, 9, 48, 512} {
		add(m, 2048, dyW.pair(2048, BF16))
		add(m, 2048, dyW.pair(2048, F32))
	}
	add(512, 64, dyW.pair(2048, F32))
	add(512, 65, dyW.pair(2048, F32))
	add(512, 65, dyW.pair(128, F32))
	add(512, 300, dyW.pair(129, F32))
	add(16, 2048, dA.pair(1024, F32))
	add(2048, 16, dA.pair(1024, F32))
	return list
}

// storedShapes are products of operands that lie in bfloat16 as activations may.
func storedShapes() (list []product) {
	add := func(m, n int, pairs ...Pair) { list = append(list, product{m: m, n: n, pairs: pairs, stored: true}) }
	half := func(p Pair) Pair { p.A.Elem = BF16; return p }
	for _, m := range []int{1, 8, 9, 32, 64, 65, 512} {
		add(m, 2048, half(xWt.pair(2048, BF16)), xWt.pair(16, F32))
		add(m, 16, half(xWt.pair(2048, F32)))
	}
	for _, m := range []int{1, 16, 512} {
		add(m, 2048, half(xWt.pair(2048, F32)))
		add(m, 2048, half(dyW.pair(2048, BF16)))
		add(m, 2048, half(xWt.pair(2048, NF4)))
		add(m, 16, half(dyW.pair(2048, F32)))
		add(m, 40, half(xWt.pair(2048, F32)))
		add(m, 2048, dA.pair(1024, BF16))
		add(m, 2048, half(dA.pair(1024, BF16)))
	}
	add(2048, 16, half(dA.pair(1024, F32)))
	return list
}
