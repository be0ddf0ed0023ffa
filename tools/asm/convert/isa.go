package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// isa is an instruction set. Its methods emit operations whose form differs between AVX2 and AVX-512.
type isa struct {
	suffix string // of function names
	bytes  int    // of a register
	stream bool   // stores bypass the cache
}

var (
	avx2   = &isa{suffix: "AVX2", bytes: 32}
	avx512 = &isa{suffix: "AVX512", bytes: 64}
)

// val holds 16 lanes of 32 bits: one register, or two with AVX2. A constant is one operand for both.
type val []Op

func (x val) at(i int) Op {
	if len(x) == 1 {
		return x[0]
	}
	return x[i]
}

// regs returns new registers for 16 lanes.
func (v *isa) regs() val {
	if v == avx512 {
		return val{ZMM()}
	}
	return val{YMM(), YMM()}
}

// two emits dst = op(x), three dst = op(a, b). b, not a, may be in memory.
func (v *isa) two(op func(ops ...Op), x val) val {
	dst := v.regs()
	for i := range dst {
		op(x.at(i), dst[i])
	}
	return dst
}

func (v *isa) three(op func(ops ...Op), a, b val) val {
	dst := v.regs()
	for i := range dst {
		op(b.at(i), a.at(i), dst[i])
	}
	return dst
}

func (v *isa) add(a, b val) val  { return v.three(VPADDD, a, b) }
func (v *isa) sub(a, b val) val  { return v.three(VPSUBD, a, b) }
func (v *isa) min(a, b val) val  { return v.three(VPMINUD, a, b) } // as unsigned numbers
func (v *isa) addF(a, b val) val { return v.three(VADDPS, a, b) }
func (v *isa) mulF(a, b val) val { return v.three(VMULPS, a, b) }
func (v *isa) minF(a, b val) val { return v.three(VMINPS, a, b) }
func (v *isa) maxF(a, b val) val { return v.three(VMAXPS, a, b) }
func (v *isa) and(a, b val) val  { return v.three(VANDPS, a, b) }
func (v *isa) or(a, b val) val   { return v.three(VORPS, a, b) }

// left and right shift the lanes by n bits; right shifts in zeros.
func (v *isa) left(x val, n int) val  { return v.three(VPSLLD, x, val{U8(n)}) }
func (v *isa) right(x val, n int) val { return v.three(VPSRLD, x, val{U8(n)}) }

// mask is a condition per lane: a mask register, or lanes with all bits set.
type mask []Op

// less compares signed integers, a < b.
func (v *isa) less(a, b val) mask {
	if v == avx512 {
		k := K()
		const lt = 1
		VPCMPD(U8(lt), b.at(0), a.at(0), k)
		return mask{k}
	}
	m := v.regs()
	for i := range m {
		VPCMPGTD(a.at(i), register(b.at(i)), m[i])
	}
	return mask(m)
}

// equal compares integers, a = b. b may be in memory.
func (v *isa) equal(a, b val) mask {
	if v == avx512 {
		k := K()
		VPCMPEQD(b.at(0), a.at(0), k)
		return mask{k}
	}
	return mask(v.three(VPCMPEQD, a, b))
}

// Predicates of compare. NaN is unordered, unlike anything else, and not less than anything.
const (
	unordered = 3
	unlike    = 4
	notLess   = 13 // ≥, false for NaN
	ordered   = 7
)

// compare compares floats by a predicate. b may be in memory.
func (v *isa) compare(predicate int, a, b val) mask {
	if v == avx512 {
		k := K()
		VCMPPS(U8(predicate), b.at(0), a.at(0), k)
		return mask{k}
	}
	m := v.regs()
	for i := range m {
		VCMPPS(U8(predicate), b.at(i), a.at(i), m[i])
	}
	return mask(m)
}

// choose selects yes where the condition holds and no elsewhere. yes may be in memory; no is overwritten.
func (v *isa) choose(m mask, yes, no val) val {
	if v == avx512 {
		VMOVDQA32(yes.at(0), m[0], no[0])
		return no
	}
	dst := v.regs()
	for i := range dst {
		VBLENDVPS(m[i], yes.at(i), no.at(i), dst[i])
	}
	return dst
}

// where selects x where the condition holds and zero elsewhere. x may be in memory.
func (v *isa) where(m mask, x val) val {
	dst := v.regs()
	for i := range dst {
		if v == avx512 {
			VMOVDQU32_Z(x.at(i), m[i], dst[i])
		} else {
			VANDPS(x.at(i), m[i], dst[i])
		}
	}
	return dst
}

// register returns x in a register, loading it if it is in memory.
func register(x Op) Op {
	if m, ok := x.(Mem); ok {
		r := YMM()
		VMOVUPS(m, r)
		return r
	}
	return x
}

// word returns a constant in all lanes. With AVX2, which has fewer registers, it stays in memory.
func (v *isa) word(bits uint32) val {
	m := literal(bits)
	if v == avx2 {
		return val{m}
	}
	r := ZMM()
	VPBROADCASTD(m, r)
	return val{r}
}

var literals = map[uint32]Mem{}

// literal returns the address of 8 copies of a word.
func literal(bits uint32) Mem {
	m, ok := literals[bits]
	if !ok {
		m = GLOBL(fmt.Sprintf("word%08x", bits), attr.RODATA|attr.NOPTR)
		for i := range 8 {
			DATA(4*i, U32(bits))
		}
		literals[bits] = m
	}
	return m
}

var tables = map[string]Mem{}

// table returns the address of some words.
func table(name string, words ...uint32) Mem {
	m, ok := tables[name]
	if !ok {
		m = GLOBL(name, attr.RODATA|attr.NOPTR)
		for i, w := range words {
			DATA(4*i, U32(w))
		}
		tables[name] = m
	}
	return m
}

// lanes loads 16 words from memory.
func (v *isa) lanes(m Mem) val {
	x := v.regs()
	for i := range x {
		VMOVUPS(m.Offset(i*v.bytes), x[i])
	}
	return x
}

// put stores 16 lanes.
func (v *isa) put(x val, m Mem) {
	for i := range x {
		v.store(x[i], m.Offset(i*v.bytes))
	}
}

// store stores a register of any size.
func (v *isa) store(x Op, m Mem) {
	switch {
	case v.stream:
		VMOVNTDQ(x, m)
	case v == avx512:
		VMOVDQU32(x, m)
	default:
		VMOVDQU(x, m)
	}
}

// bytesOf returns the low bytes of 16 lanes, which must be 0 to 255.
func (v *isa) bytesOf(x val) reg.VecVirtual {
	low := XMM()
	if v == avx512 {
		VPMOVDB(x[0], low)
		return low
	}
	words, high := v.wordsOf(VPACKUSDW, x)[0].(reg.VecVirtual), XMM()
	VEXTRACTI128(U8(1), words, high)
	VPACKUSWB(high, words.AsX(), low)
	return low
}

// wordsOf returns the low words of 16 lanes in one register. AVX2 has no truncation, so pack must not saturate the
// values.
func (v *isa) wordsOf(pack func(ops ...Op), x val) val {
	words := YMM()
	if v == avx512 {
		VPMOVDW(x[0], words)
		return val{words}
	}
	pack(x[1], x[0], words) // interleaves both inputs in each half of the register
	VPERMQ(U8(0b11011000), words, words)
	return val{words}
}
