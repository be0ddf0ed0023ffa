package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// philox holds the registers of Philox4x32-10 with one counter per lane.
type philox struct {
	*isa
	mul       [2]reg.VecVirtual // the multipliers
	keys      Mem               // two words per round
	even, odd reg.Register      // AVX-512: lane masks
}

// Offsets in dropBlock of package vec.
const (
	counterAt, keyAt, thresholdAt, scaleAt = 0, 16, 24, 28
)

func newPhilox(v *isa, block reg.Register) *philox {
	p := &philox{isa: v, keys: AllocLocal(80)}
	for i, m := range []uint32{0xD2511F53, 0xCD9E8D57} {
		p.mul[i] = v.reg()
		VPBROADCASTD(literal(m), p.mul[i])
	}
	for i, weyl := range []uint32{0x9E3779B9, 0xBB67AE85} {
		k := GP32()
		MOVL(Mem{Base: block, Disp: keyAt + 4*i}, k)
		for r := range 10 {
			MOVL(k, p.keys.Offset(8*r+4*i))
			ADDL(U32(weyl), k)
		}
	}
	if v == avx512 {
		m := GP32()
		p.even, p.odd = K(), K()
		MOVL(U32(0x5555), m)
		KMOVW(m, p.even)
		MOVL(U32(0xaaaa), m)
		KMOVW(m, p.odd)
	}
	return p
}

// mulhilo computes the upper and lower words of the products with multiplier i. The instruction multiplies only the
// even words of each register.
func (p *philox) mulhilo(i int, c reg.VecVirtual) (hi, lo reg.VecVirtual) {
	v := p.isa
	shifted, even, odd := v.reg(), v.reg(), v.reg()
	VPSRLQ(U8(32), c, shifted)
	VPMULUDQ(p.mul[i], c, even)
	VPMULUDQ(p.mul[i], shifted, odd)
	hi, lo = v.reg(), v.reg()
	if v == avx512 {
		VMOVAPS(odd, hi)
		VMOVSHDUP(even, p.even, hi)
		VMOVSLDUP(odd, p.odd, even)
		return hi, even
	}
	const oddLanes = 0xaa
	VMOVSHDUP(even, hi)
	VPBLENDD(U8(oddLanes), odd, hi, hi)
	VMOVSLDUP(odd, lo)
	VPBLENDD(U8(oddLanes), lo, even, lo)
	return hi, lo
}

// xor emits hi ^= c ^ key word k.
func (p *philox) xor(hi, c reg.VecVirtual, k int) {
	key := p.keys.Offset(4 * k)
	if p.isa == avx512 {
		const xor3 = 0x96
		VPTERNLOGD_BCST(U8(xor3), key, c, hi)
		return
	}
	w := p.reg()
	VPBROADCASTD(key, w)
	VPXOR(c, hi, hi)
	VPXOR(w, hi, hi)
}

// block computes the four words of each counter.
func (p *philox) block(c [4]reg.VecVirtual) [4]reg.VecVirtual {
	for r := range 10 {
		hi0, lo0 := p.mulhilo(0, c[0])
		hi1, lo1 := p.mulhilo(1, c[2])
		p.xor(hi1, c[1], 2*r)
		p.xor(hi0, c[3], 2*r+1)
		c = [4]reg.VecVirtual{hi1, lo1, hi0, lo0}
	}
	return c
}

// transposed reorders the words of each counter to be adjacent: 128 bits of register j hold the words of the counter in
// the j-th words of these 128 bits.
func (p *philox) transposed(w [4]reg.VecVirtual) [4]reg.VecVirtual {
	v := p.isa
	var out [4]reg.VecVirtual
	for half, pair := range []func(ops ...Op){VPUNPCKLDQ, VPUNPCKHDQ} {
		a, b := v.reg(), v.reg()
		pair(w[1], w[0], a)
		pair(w[3], w[2], b)
		out[2*half], out[2*half+1] = v.reg(), v.reg()
		VPUNPCKLQDQ(b, a, out[2*half])
		VPUNPCKHQDQ(b, a, out[2*half+1])
	}
	return out
}

// draws holds the state of a loop that draws words for whole groups of 4·lanes elements. Counters are assigned to lanes
// so that transposed returns them in ascending order.
type draws struct {
	*isa
	philox          *philox
	counter         [4]reg.VecVirtual
	next, threshold reg.VecVirtual
}

func newDraws(v *isa, order Mem, block reg.Register) *draws {
	d := &draws{isa: v, philox: newPhilox(v, block)}
	for i := range d.counter {
		d.counter[i] = d.broadcast(block, counterAt+4*i)
	}
	VPADDD(order, d.counter[0], d.counter[0])
	d.next = v.copy(v.word(uint32(v.lanes)), 1)[0].(reg.VecVirtual)
	d.threshold = d.broadcast(block, thresholdAt)
	return d
}

func (d *draws) broadcast(block reg.Register, disp int) reg.VecVirtual {
	r := d.reg()
	VPBROADCASTD(Mem{Base: block, Disp: disp}, r)
	return r
}

// each emits the drawing of a group, and calls use for each register of words.
func (d *draws) each(use func(j int, w reg.VecVirtual)) {
	for j, w := range d.philox.transposed(d.philox.block(d.counter)) {
		use(j, w)
	}
	VPADDD(d.next, d.counter[0], d.counter[0])
}

// kept returns the mask of the lanes whose words are kept.
func (d *draws) kept(w reg.VecVirtual) reg.Register {
	if d.isa == avx512 {
		const notLess = 5
		keep := K()
		VPCMPUD(U8(notLess), d.threshold, w, keep)
		return keep
	}
	keep := d.reg()
	VPMAXUD(d.threshold, w, keep)
	VPCMPEQD(keep, w, keep)
	return keep
}

// dropout emits the masking of elements, and of bits that record which elements are kept.
func dropout(v *isa) {
	order := GLOBL("counters"+v.suffix, 8|16) // RODATA, NOPTR
	parts := v.lanes / 4
	for part := range parts {
		for j := range 4 {
			DATA(4*(4*part+j), U32(uint32(parts*j+part)))
		}
	}
	dropElements(v, order)
	keepBits(v, order)
	masked(v)
}

// groups emits body for at = 0, turn … below n, a multiple of turn.
func groups(n, at reg.GPVirtual, turn Constant, body func()) {
	XORQ(at, at)
	TESTQ(n, n)
	JZ(LabelRef("end"))
	Label("loop")
	body()
	ADDQ(turn, at)
	CMPQ(at, n)
	JLT(LabelRef("loop"))
	Label("end")
}

func dropElements(v *isa, order Mem) {
	v.text("dropout", "dst, x []float32, d *uint32",
		"is dst = x·scale where the mask keeps, else 0; d points to a dropBlock, len(dst) is a multiple of 64.")
	n, at := length("dst"), GP64()
	dst, x := base("dst"), base("x")
	block := Load(Param("d"), GP64())
	d := newDraws(v, order, block)
	scale := d.broadcast(block, scaleAt)

	groups(n, at, I32(4*v.lanes), func() {
		d.each(func(j int, w reg.VecVirtual) {
			v.select0(Mem{Base: x, Index: at, Scale: 4, Disp: j * v.bytes()}, scale, d.kept(w), Mem{Base: dst, Index: at, Scale: 4, Disp: j * v.bytes()})
		})
	})
	end()
}

// select0 emits dst = src·scale in the lanes of keep, else 0.
func (v *isa) select0(src Mem, scale reg.VecVirtual, keep reg.Register, dst Mem) {
	y := v.reg()
	if v == avx512 {
		VMULPS_Z(src, scale, keep, y)
	} else {
		VMULPS(src, scale, y)
		VANDPS(keep, y, y)
	}
	VMOVUPS(y, dst)
}

func keepBits(v *isa, order Mem) {
	v.text("keep", "bits []byte, d *uint32",
		"sets the bits of the elements that the mask keeps; d points to a dropBlock, len(bits) is a multiple of 8.")
	n, at := length("bits"), GP64()
	bits := base("bits")
	d := newDraws(v, order, Load(Param("d"), GP64()))
	groups(n, at, I32(4*v.lanes/8), func() {
		d.each(func(j int, w reg.VecVirtual) {
			keep, to := d.kept(w), Mem{Base: bits, Index: at, Scale: 1, Disp: j * v.lanes / 8}
			if v == avx512 {
				KMOVW(keep, to)
				return
			}
			m := GP32()
			VMOVMSKPS(keep, m)
			MOVB(m.As8(), to)
		})
	})
	end()
}

func masked(v *isa) {
	const turn = 16 // elements
	v.text("masked", "dst, x []float32, bits []byte, scale float32",
		"is dst = x·scale where the bit is set, else 0; len(dst) is a multiple of 16.")
	n, at := length("dst"), GP64()
	dst, x, bits := base("dst"), base("x"), base("bits")
	scale := v.reg()
	p, _ := Param("scale").Resolve()
	VBROADCASTSS(p.Addr, scale)
	var lane reg.VecVirtual // the bit of each lane
	if v != avx512 {
		lane = v.reg()
		each := GLOBL("bits"+v.suffix, 8|16)
		for i := range v.lanes {
			DATA(4*i, U32(1<<i))
		}
		VMOVDQU(each, lane)
	}
	groups(n, at, I8(turn), func() {
		for j := range turn / v.lanes {
			from := Mem{Base: bits, Disp: j * v.lanes / 8}
			var keep reg.Register
			if v == avx512 {
				k := K()
				KMOVW(from, k)
				keep = k
			} else {
				m := v.reg()
				VPBROADCASTB(from, m)
				VPAND(lane, m, m)
				VPCMPEQD(lane, m, m)
				keep = m
			}
			v.select0(Mem{Base: x, Index: at, Scale: 4, Disp: j * v.bytes()}, scale, keep, Mem{Base: dst, Index: at, Scale: 4, Disp: j * v.bytes()})
		}
		ADDQ(I8(turn/8), bits)
	})
	end()
}
