package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// matrixVector emits the products of decoding, which read each row of a
// matrix once.
func matrixVector(v *isa) {
	dotRows(v)
	addRows(v)
}

// addRows keeps up to eight registers of sums while all rows go by.
func addRows(v *isa) {
	v.text("addRows", "dst, p, rows []float32, stride int", "is dst += Σ p[j]·row j.")
	l := loop{isa: v, n: length("dst"), at: GP64()}
	dst, p, rows, count, stride := base("dst"), base("p"), base("rows"), length("p"), GP64()
	Load(Param("stride"), stride)
	SHLQ(U8(2), stride)
	XORQ(l.at, l.at)
	block := func(name string, n int, mask reg.Register) {
		acc := v.load(l.mem(dst), n, mask)
		row, factor, left := GP64(), GP64(), GP64()
		LEAQ(l.mem(rows), row)
		MOVQ(p, factor)
		MOVQ(count, left)
		Label("rows" + name)
		a := v.reg()
		VBROADCASTSS(Mem{Base: factor}, a)
		if mask == nil {
			for i := range acc {
				VFMADD231PS(Mem{Base: row, Disp: i * v.bytes()}, a, acc[i])
			}
		} else {
			v.addMul(acc, val{a}, v.load(Mem{Base: row}, n, mask))
		}
		ADDQ(stride, row)
		ADDQ(I32(4), factor)
		DECQ(left)
		JNZ(LabelRef("rows" + name))
		v.store(acc, l.mem(dst), mask)
	}
	for _, n := range []int{8, 4, 2, 1} {
		step := n * v.lanes
		again, done := label("columns", n), label("done", n)
		Label(again)
		SUBQ(I32(step), l.n)
		JLT(LabelRef(done))
		block(label("", n), n, nil)
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

// dotRows takes four rows at a time; where fewer are left, it takes the last
// one again, so that every row is summed in the same order.
func dotRows(v *isa) {
	v.text("dotRows", "dst, x, rows []float32, stride int", "is dst[j] = x·row j.")
	dst, x, first, stride := base("dst"), base("x"), base("rows"), GP64()
	count, columns := length("dst"), length("x")
	Load(Param("stride"), stride)
	SHLQ(U8(2), stride)

	Label("rows")
	rows := [4]reg.GPVirtual{first, GP64(), GP64(), GP64()}
	for i := 1; i < 4; i++ {
		next := GP64()
		LEAQ(Mem{Base: rows[i-1], Index: stride, Scale: 1}, next)
		MOVQ(rows[i-1], rows[i])
		CMPQ(count, I8(int8(i)))
		CMOVQGT(next, rows[i])
	}
	var acc val
	for range rows {
		acc = append(acc, v.zero())
	}
	l := loop{isa: v, n: GP64(), at: GP64()}
	MOVQ(columns, l.n)
	l.run(1, func(_ int, mask reg.Register) {
		c := v.load(l.mem(x), 1, mask)
		for i, row := range rows {
			if mask == nil {
				VFMADD231PS(l.mem(row), c[0], acc[i])
			} else {
				v.addMul(acc[i:i+1], c, v.load(l.mem(row), 1, mask))
			}
		}
	})
	// Four sums of all lanes, side by side.
	s := val{}
	for _, a := range acc {
		r := a.(reg.VecVirtual)
		if v == avx512 {
			hi := YMM()
			VEXTRACTF64X4(U8(1), r, hi)
			VADDPS(hi, r.AsY(), hi)
			r = hi
		}
		s = append(s, r)
	}
	sum, hi := YMM(), XMM()
	pairs := [2]reg.VecVirtual{YMM(), YMM()}
	VHADDPS(s[1], s[0], pairs[0])
	VHADDPS(s[3], s[2], pairs[1])
	VHADDPS(pairs[1], pairs[0], sum)
	VEXTRACTF128(U8(1), sum, hi)
	VADDPS(hi, sum.AsX(), hi)

	CMPQ(count, I8(4))
	JLT(LabelRef("last"))
	VMOVUPS(hi, Mem{Base: dst})
	ADDQ(I32(16), dst)
	LEAQ(Mem{Base: rows[3], Index: stride, Scale: 1}, first)
	SUBQ(I32(4), count)
	JNZ(LabelRef("rows"))
	JMP(LabelRef("finish"))
	Label("last")
	for i := range 3 {
		VMOVSS(hi, Mem{Base: dst, Disp: 4 * i})
		if i < 2 {
			VPSRLDQ(U8(4), hi, hi)
			DECQ(count)
			JZ(LabelRef("finish"))
		}
	}
	Label("finish")
	end()
}
