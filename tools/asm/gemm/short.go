package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// short emits the products of one row of x with n short rows of w, such as h·Bᵀ of an adapter. Their bottleneck is the
// sums across registers, so as many rows as a register has lanes are summed together. The order of additions is the
// same for every row.
func short(v *vector) {
	text("short"+v.name, "func(k int, x *float32, w *byte, ldw, n int, c *float32, alpha float32)",
		"c[j] += alpha·x·w[j·ldw:], ldw in bytes, j < n; k, n > 0.")
	const quad = 4
	sums, x, w := v.r[:v.lanes], v.r[v.lanes], v.r[v.lanes+1:][:quad]
	alpha := v.r[len(v.r)-1]
	var left, stored reg.Register = reg.K1, reg.K2 // masks of the remainders of k and n
	if v == avx2 {
		left, stored = v.r[len(v.r)-2], v.r[len(v.r)-3]
	}
	rows := []reg.GPPhysical{reg.RBX, reg.R11, reg.R12, reg.R13}
	none, tail, step := reg.R8, reg.R15, reg.R9
	param("k", reg.RCX)
	param("x", reg.RSI)
	param("w", reg.RDX)
	param("ldw", step)
	param("n", reg.R10)
	param("c", reg.RDI)
	p, _ := Param("alpha").Resolve()
	VBROADCASTSS(p.Addr, alpha)
	XORQ(none, none)
	MOVQ(reg.RCX, tail)
	ANDQ(I32(int32(v.lanes-1)), tail)
	SUBQ(tail, reg.RCX)
	SHLQ(U8(2), reg.RCX) // bytes of whole registers
	v.setMask(left, tail, reg.RAX, x)

	Label("group")
	for q := 0; q < v.lanes; q += quad {
		MOVQ(reg.RDX, rows[0])
		for i := range rows { // past the end, the last row is read again
			DECQ(reg.R10)
			CMOVQLE(none, step)
			next := reg.RDX
			if i+1 < quad {
				next = rows[i+1]
			}
			LEAQ(Mem{Base: rows[i], Index: step, Scale: 1}, next)
		}
		part := sums[q:][:quad]
		for _, z := range part {
			zero(z)
		}
		loop, rest, done := sprintf("loop%d", q), sprintf("rest%d", q), sprintf("done%d", q)
		XORQ(reg.RAX, reg.RAX)
		TESTQ(reg.RCX, reg.RCX)
		JZ(LabelRef(rest))
		Label(loop)
		VMOVUPS(Mem{Base: reg.RSI, Index: reg.RAX, Scale: 1}, x)
		for i, z := range part {
			VFMADD231PS(Mem{Base: rows[i], Index: reg.RAX, Scale: 1}, x, z)
		}
		ADDQ(I32(int32(v.bytes())), reg.RAX)
		CMPQ(reg.RAX, reg.RCX)
		JLT(LabelRef(loop))
		Label(rest)
		TESTQ(tail, tail)
		JZ(LabelRef(done))
		loadMasked(Mem{Base: reg.RSI, Index: reg.RAX, Scale: 1}, left, x)
		for i, z := range part {
			loadMasked(Mem{Base: rows[i], Index: reg.RAX, Scale: 1}, left, w[i])
			VFMADD231PS(w[i], x, z)
		}
		Label(done)
		pairs(part, w[0], w[1])
	}
	z := v.together(sums, w)
	LEAQ(Mem{Base: reg.R10, Disp: v.lanes}, reg.RAX) // number of remaining rows: R10 is negative at the end
	if v == avx512 {
		MOVQ(I32(int32(v.lanes)), reg.RBX)
		CMPQ(reg.RAX, reg.RBX)
		CMOVQGT(reg.RBX, reg.RAX)
	}
	v.setMask(stored, reg.RAX, reg.RBX, w[0])
	addMasked(z, alpha, stored, w[0], Mem{Base: reg.RDI})
	ADDQ(I32(int32(v.bytes())), reg.RDI)
	TESTQ(reg.R10, reg.R10)
	JG(LabelRef("group"))
	VZEROUPPER()
	RET()
}

// setMask sets the first n lanes of a mask of v; with AVX-512 n must not exceed the number of lanes. It uses tmp or
// wide.
func (v *vector) setMask(mask reg.Register, n, tmp reg.GPPhysical, wide reg.VecPhysical) {
	if v == avx512 {
		mask512(n, tmp, mask.(reg.OpmaskPhysical))
		return
	}
	v.mask256(n, wide, mask.(reg.VecPhysical))
}

// together returns a register with the sums of quads that pairs left in every fourth register of z, in order.
func (v *vector) together(z, tmp []reg.VecPhysical) reg.VecPhysical {
	if v == avx2 {
		VPERM2F128(U8(0x20), z[4], z[0], tmp[0])
		VPERM2F128(U8(0x31), z[4], z[0], tmp[1])
		VADDPS(tmp[1], tmp[0], z[0])
		return z[0]
	}
	const even, odd = 0x88, 0xdd // quarters
	both := func(a, b reg.VecPhysical) {
		VSHUFF32X4(U8(even), b, a, tmp[0])
		VSHUFF32X4(U8(odd), b, a, tmp[1])
		VADDPS(tmp[1], tmp[0], a)
	}
	both(z[0], z[4])
	both(z[8], z[12])
	both(z[0], z[8])
	return z[0]
}
