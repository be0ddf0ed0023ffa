package main

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// isa is an instruction set. Its methods emit operations whose form differs between AVX2 and AVX-512.
type isa struct {
	suffix string // of function names
	lanes  int    // floats per register
}

var (
	avx2   = &isa{"AVX2", 8}
	avx512 = &isa{"AVX512", 16}
)

// bytes returns the size of a register.
func (v *isa) bytes() int { return 4 * v.lanes }

// reg returns a new register.
func (v *isa) reg() reg.VecVirtual {
	if v == avx512 {
		return ZMM()
	}
	return YMM()
}

// val holds one operand for each of several registers, or one operand for all of them. Registers are processed side by
// side, so that the processor has independent work.
type val []Op

func (x val) at(i int) Op {
	if len(x) == 1 {
		return x[0]
	}
	return x[i]
}

// width returns the number of registers side by side.
func width(xs ...val) int {
	n := 1
	for _, x := range xs {
		n = max(n, len(x))
	}
	return n
}

// regs returns n new registers.
func (v *isa) regs(n int) val {
	x := make(val, n)
	for i := range x {
		x[i] = v.reg()
	}
	return x
}

// three emits dst = op(a, b) for a new dst. b, but not a, may be in memory.
func (v *isa) three(op func(ops ...Op), a, b val) val {
	dst := v.regs(width(a, b))
	for i := range dst {
		op(b.at(i), a.at(i), dst[i])
	}
	return dst
}

func (v *isa) add(a, b val) val { return v.three(VADDPS, a, b) }
func (v *isa) sub(a, b val) val { return v.three(VSUBPS, a, b) }
func (v *isa) mul(a, b val) val { return v.three(VMULPS, a, b) }
func (v *isa) div(a, b val) val { return v.three(VDIVPS, a, b) }

// max computes the larger operand; it returns b if one of the two is NaN.
func (v *isa) max(a, b val) val { return v.three(VMAXPS, a, b) }
func (v *isa) min(a, b val) val { return v.three(VMINPS, a, b) }

func (v *isa) and(a, b val) val { return v.three(VANDPS, a, b) }
func (v *isa) xor(a, b val) val { return v.three(VXORPS, a, b) }

// addMul emits acc += a·b. b may be in memory.
func (v *isa) addMul(acc, a, b val) {
	for i := range acc {
		VFMADD231PS(b.at(i), a.at(i), acc[i])
	}
}

// subMul emits acc −= a·b. b may be in memory.
func (v *isa) subMul(acc, a, b val) {
	for i := range acc {
		VFNMADD231PS(b.at(i), a.at(i), acc[i])
	}
}

// mulAdd emits x = x·m + c. c may be in memory; with AVX-512 only as a far constant.
func (v *isa) mulAdd(x, m, c val) {
	for i := range x {
		if _, far := c.at(i).(Mem); far && v == avx512 {
			VFMADD213PS_BCST(c.at(i), m.at(i), x[i])
			continue
		}
		VFMADD213PS(c.at(i), m.at(i), x[i])
	}
}

// mulSub emits x = x·m − c. c may be in memory.
func (v *isa) mulSub(x, m, c val) {
	for i := range x {
		VFMSUB213PS(c.at(i), m.at(i), x[i])
	}
}

// copy copies x to n new registers. x may be in memory.
func (v *isa) copy(x val, n int) val {
	dst := v.regs(n)
	for i := range dst {
		VMOVUPS(x.at(i), dst[i])
	}
	return dst
}

func (v *isa) sqrt(x val) val {
	dst := v.regs(len(x))
	for i := range dst {
		VSQRTPS(x[i], dst[i])
	}
	return dst
}

// round rounds x to the nearest integer, ties to even.
func (v *isa) round(x val) val {
	dst := v.regs(len(x))
	for i := range dst {
		if v == avx512 {
			VRNDSCALEPS(U8(8), x[i], dst[i])
		} else {
			VROUNDPS(U8(8), x[i], dst[i])
		}
	}
	return dst
}

// bySign selects neg where the sign bit of x is set and pos elsewhere.
func (v *isa) bySign(x, neg, pos val) val {
	dst := v.regs(len(x))
	for i := range dst {
		if v == avx512 {
			k := K()
			VPMOVD2M(x[i], k)
			VBLENDMPS(neg.at(i), pos.at(i), k, dst[i])
		} else {
			VBLENDVPS(x[i], neg.at(i), pos.at(i), dst[i])
		}
	}
	return dst
}

// zero returns a cleared register.
func (v *isa) zero() reg.VecVirtual {
	r := v.reg()
	if v == avx512 {
		VPXORD(r, r, r)
	} else {
		VXORPS(r, r, r)
	}
	return r
}

// constant returns a float for all lanes. With AVX-512 it occupies a register from here on. With AVX2 it stays in
// memory, because there are fewer registers; use copy to load it.
func (v *isa) constant(f float64) val { return v.word(math.Float32bits(float32(f))) }

// word returns a 32-bit constant; see constant.
func (v *isa) word(bits uint32) val {
	m := literal(bits)
	if v == avx2 {
		return val{m}
	}
	r := v.reg()
	VBROADCASTSS(m, r)
	return val{r}
}

// near returns a constant that is in a register with AVX2 too.
func (v *isa) near(f float64) val {
	c := v.constant(f)
	if v == avx2 {
		c = v.copy(c, 1)
	}
	return c
}

// far returns a constant that is in memory with AVX-512 too, for mulAdd.
func (v *isa) far(f float64) val { return val{literal(math.Float32bits(float32(f)))} }

var literals = map[uint32]Mem{}

// literal returns the address of 8 copies of a word.
func literal(bits uint32) Mem {
	m, ok := literals[bits]
	if !ok {
		name := fmt.Sprintf("word%08x", bits)
		m = GLOBL(name, attr.RODATA|attr.NOPTR)
		for i := range 8 {
			DATA(4*i, U32(bits))
		}
		literals[bits] = m
	}
	return m
}

// masks returns the address of 8 set words and 8 clear ones: the mask of the first n lanes starts at 4·(8−n).
func masks() Mem {
	if maskTable.Symbol.Name == "" {
		maskTable = GLOBL("masks", attr.RODATA|attr.NOPTR)
		for i := range 16 {
			w := uint32(math.MaxUint32)
			if i >= 8 {
				w = 0
			}
			DATA(4*i, U32(w))
		}
	}
	return maskTable
}

var maskTable Mem

// mask returns a register that selects the first n lanes, 0 < n < lanes.
func (v *isa) mask(n reg.GPVirtual) reg.Register {
	if v == avx512 {
		m, k := GP64(), K()
		MOVQ(I32(-1), m)
		BZHIQ(n, m, m)
		KMOVW(m.As32(), k)
		return k
	}
	p, table, m := GP64(), GP64(), YMM()
	LEAQ(masks(), table)
	MOVQ(n, p)
	NEGQ(p)
	VMOVUPS(Mem{Base: table, Index: p, Scale: 4, Disp: 32}, m)
	return m
}

// load loads n registers from memory. With a mask it loads the selected lanes and clears the others.
func (v *isa) load(m Mem, n int, mask reg.Register) val {
	x := v.regs(n)
	for i := range x {
		at := m.Offset(i * v.bytes())
		switch {
		case mask == nil:
			VMOVUPS(at, x[i])
		case v == avx512:
			VMOVUPS_Z(at, mask, x[i])
		default:
			VMASKMOVPS(at, mask, x[i])
		}
	}
	return x
}

// store is the inverse of load; lanes not selected are unchanged.
func (v *isa) store(x val, m Mem, mask reg.Register) {
	for i := range x {
		at := m.Offset(i * v.bytes())
		switch {
		case mask == nil:
			VMOVUPS(x[i], at)
		case v == avx512:
			VMOVUPS(x[i], mask, at)
		default:
			VMASKMOVPS(x[i], mask, at)
		}
	}
}

// selected clears the lanes of x that mask does not select.
func (v *isa) selected(x val, mask reg.Register) val {
	if mask == nil {
		return x
	}
	dst := v.regs(len(x))
	for i := range dst {
		if v == avx512 {
			VMOVAPS_Z(x[i], mask, dst[i])
		} else {
			VANDPS(x[i], mask, dst[i])
		}
	}
	return dst
}

// scalar loads a float parameter into all lanes.
func (v *isa) scalar(name string) val {
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	r := v.reg()
	VBROADCASTSS(p.Addr, r)
	return val{r}
}

// text starts a function.
func (v *isa) text(name, signature, doc string) {
	TEXT(name+v.suffix, NOSPLIT, "func("+signature+")")
	Pragma("noescape")
	if v == avx2 { // the others do the same
		Doc(name + v.suffix + " " + doc)
	}
}

// end ends a function.
func end() {
	VZEROUPPER()
	RET()
}
