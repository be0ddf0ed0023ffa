package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// matrixVector emits the matrix-vector products of decoding. They read each row of a matrix once for several vectors:
// one, or as many as the registers allow.
func matrixVector(v *isa) {
	groups := []int{1, 2}
	if v == avx512 {
		groups = append(groups, 4)
	}
	for _, n := range groups {
		dotRows(v, n)
		addRows(v, n)
	}
}

// parameter loads an integer or a pointer. The kernels reload rarely used parameters each time, since there are not
// enough registers for all.
func parameter(name string) reg.GPVirtual {
	r := GP64()
	Load(Param(name), r)
	return r
}

// strided loads n addresses at a distance of stride.
func strided(first, stride string, n int) []reg.GPVirtual {
	at := []reg.GPVirtual{parameter(first)}
	if n > 1 {
		s := parameter(stride)
		SHLQ(U8(2), s)
		for i := 1; i < n; i++ {
			at = append(at, GP64())
			LEAQ(Mem{Base: at[i-1], Index: s, Scale: 1}, at[i])
		}
	}
	return at
}

// rowStride returns the distance of rows in bytes.
func rowStride() reg.GPVirtual {
	s := parameter("stride")
	SHLQ(U8(2), s)
	return s
}

const panelSignature = "x *float32, xStride int, p *float32, pStride int, rows *float32, stride, width, count int"

// addRows holds some columns of the sums of all vectors in registers while it iterates over the rows.
func addRows(v *isa, n int) {
	v.text(label("addRows", n), panelSignature, "is x += Σ p[j]·row j for several x with their p; count > 0.")
	vectors, factors, stride := strided("x", "xStride", n), strided("p", "pStride", n), rowStride()
	count, err := Param("count").Resolve()
	if err != nil {
		panic(err)
	}
	l := loop{isa: v, n: parameter("width"), at: GP64()}
	XORQ(l.at, l.at)
	block := func(name string, vecs int, mask reg.Register) {
		var acc []val
		for i := range n {
			acc = append(acc, v.load(l.mem(vectors[i]), vecs, mask))
		}
		row, j := parameter("rows"), GP64()
		LEAQ(l.mem(row), row)
		XORQ(j, j)
		Label("rows" + name)
		var columns val
		if n == 1 && mask == nil { // read once, in place
			for i := range vecs {
				columns = append(columns, Mem{Base: row, Disp: i * v.bytes()})
			}
		} else {
			columns = v.load(Mem{Base: row}, vecs, mask)
		}
		for i := range n {
			a := v.reg()
			VBROADCASTSS(Mem{Base: factors[i], Index: j, Scale: 4}, a)
			v.addMul(acc[i], val{a}, columns)
		}
		ADDQ(stride, row)
		INCQ(j)
		CMPQ(j, count.Addr)
		JLT(LabelRef("rows" + name))
		for i := range n {
			v.store(acc[i], l.mem(vectors[i]), mask)
		}
	}
	sizes := []int{4, 2, 1}
	if n == 1 {
		sizes = append([]int{8}, sizes...)
	}
	for _, vecs := range sizes {
		step := vecs * v.lanes
		again, done := label("columns", vecs), label("done", vecs)
		Label(again)
		SUBQ(I32(step), l.n)
		JLT(LabelRef(done))
		block(label("", vecs), vecs, nil)
		ADDQ(I32(step), l.at)
		JMP(LabelRef(again))
		Label(done)
		ADDQ(I32(step), l.n)
	}
	JZ(LabelRef("end"))
	block("Part", 1, v.mask(l.n))
	Label("end")
	end()
}

// dotRows processes four rows at a time. If fewer are left, it repeats the last one, so that every row is summed in the
// same order.
func dotRows(v *isa, n int) {
	v.text(label("dotRows", n), panelSignature, "is p[j] = x·row j for several x with their p; count > 0.")
	vectors, count := strided("x", "xStride", n), parameter("count")
	rows := [4]reg.GPVirtual{parameter("rows"), GP64(), GP64(), GP64()}
	at := GP64() // the first of the four
	XORQ(at, at)

	Label("rows")
	stride := rowStride()
	for i := 1; i < 4; i++ {
		next := GP64()
		LEAQ(Mem{Base: rows[i-1], Index: stride, Scale: 1}, next)
		MOVQ(rows[i-1], rows[i])
		CMPQ(count, I8(int8(i)))
		CMOVQGT(next, rows[i])
	}
	acc := make([]val, n)
	for i := range acc {
		for range rows {
			acc[i] = append(acc[i], v.zero())
		}
	}
	l := loop{isa: v, n: parameter("width"), at: GP64()}
	l.run(1, func(_ int, mask reg.Register) {
		var x [4]val
		for i := range n {
			x[i] = v.load(l.mem(vectors[i]), 1, mask)
		}
		for r, row := range rows {
			column := val{l.mem(row)}
			if mask != nil || n > 1 {
				column = v.load(l.mem(row), 1, mask)
			}
			for i := range n {
				v.addMul(acc[i][r:r+1], x[i], column)
			}
		}
	})
	sums := make([]reg.VecVirtual, n)
	for i := range acc {
		sums[i] = v.foldFour(acc[i])
	}

	dst := strided("p", "pStride", n)
	CMPQ(count, I8(4))
	JLT(LabelRef("last"))
	for i := range n {
		VMOVUPS(sums[i].AsX(), Mem{Base: dst[i], Index: at, Scale: 4})
	}
	ADDQ(I8(4), at)
	MOVQ(rows[3], rows[0])
	ADDQ(rowStride(), rows[0])
	SUBQ(I8(4), count)
	JNZ(LabelRef("rows"))
	JMP(LabelRef("finish"))
	Label("last")
	for r := range 3 {
		for i := range n {
			VMOVSS(sums[i].AsX(), Mem{Base: dst[i], Index: at, Scale: 4, Disp: 4 * r})
			if r < 2 {
				VPSRLDQ(U8(4), sums[i].AsX(), sums[i].AsX())
			}
		}
		if r < 2 {
			DECQ(count)
			JZ(LabelRef("finish"))
		}
	}
	Label("finish")
	end()
}

// foldFour returns the sums over all lanes of four registers, side by side. It reduces by halves like foldLanes.
func (v *isa) foldFour(acc val) reg.VecVirtual {
	s := val{}
	for _, a := range acc {
		r := a.(reg.VecVirtual)
		hi := YMM()
		if v == avx512 {
			VEXTRACTF64X4(U8(1), r, hi)
			VADDPS(hi, r.AsY(), hi)
			r, hi = hi, YMM()
			VEXTRACTF32X4(U8(1), r, hi.AsX())
		} else {
			VEXTRACTF128(U8(1), r, hi.AsX())
		}
		VADDPS(hi.AsX(), r.AsX(), hi.AsX())
		s = append(s, hi.AsX())
	}
	// In each half of the four words: 0+2 and 1+3 of a, then of b.
	halves := func(a, b Op) reg.Register {
		lo, hi := XMM(), XMM()
		VUNPCKLPS(b, a, lo)
		VUNPCKHPS(b, a, hi)
		VADDPS(hi, lo, lo)
		return lo
	}
	left, right := halves(s[0], s[1]), halves(s[2], s[3])
	lo, hi := YMM(), XMM()
	VUNPCKLPD(right, left, lo.AsX())
	VUNPCKHPD(right, left, hi)
	VADDPS(hi, lo.AsX(), lo.AsX())
	return lo
}
