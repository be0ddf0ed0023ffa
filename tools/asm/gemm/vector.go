package main

import (
	"fmt"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// vector is an instruction set with its registers and the shapes of its kernels.
type vector struct {
	name  string
	lanes int // floats per register
	r     []reg.VecPhysical
	iota  Mem // constant 0, 1, 2 …
	zip   Mem // constants 0, 16, 1, 17 …, which interleave words of two halves; then 0, 32, 1, 33 … and 16, 48 …, for the halves of two registers

	evens, odds Mem // constants 0, 2, 4 … and 1, 3, 5 …, which deinterleave two registers of words
	upper       Mem // constant mask of the upper halves of words
	nibbles     Mem // constant mask of the lower halves of bytes
	spreadCodes Mem // constant 0, 2, 4, 6, 1, 3, 5, 7

	below, single Mem // constant masks, see edge

	tileRows, tileVecs int   // shape of a tile: rows, and columns in registers
	copyVecs           []int // widths of copyLanes
	dotRows            int   // maximum rows of x in dotRows
	directRows         int   // maximum rows of a in direct
	outerRows          int   // maximum rows of a in outer
	gridRows           int   // maximum rows of x in grid
	fanRows            int   // rows of x in fan: the most, at a power-of-two distance, that leave room for w in the first-level cache
}

var (
	avx512 = &vector{name: "512", lanes: 16, tileRows: 12, tileVecs: 2, copyVecs: []int{1, 2}, dotRows: 4, directRows: 8, outerRows: 16, gridRows: 8, fanRows: 8, r: []reg.VecPhysical{
		reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7,
		reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12, reg.Z13, reg.Z14, reg.Z15,
		reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23,
		reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31,
	}}
	avx2 = &vector{name: "256", lanes: 8, tileRows: 6, tileVecs: 2, copyVecs: []int{2}, dotRows: 3, directRows: 6, outerRows: 6, gridRows: 4, fanRows: 6, r: []reg.VecPhysical{
		reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7,
		reg.Y8, reg.Y9, reg.Y10, reg.Y11, reg.Y12, reg.Y13, reg.Y14, reg.Y15,
	}}
)

// width returns the number of columns of a tile.
func (v *vector) width() int { return v.tileVecs * v.lanes }

// bytes returns the size of a register.
func (v *vector) bytes() int { return 4 * v.lanes }

// constants emits the data that the kernels of v refer to.
func (v *vector) constants() {
	if v == avx512 {
		v.zips()
		v.evens = GLOBL("evens512", 8|16)
		for i := range v.lanes {
			DATA(4*i, U32(uint32(2*i)))
		}
		v.odds = GLOBL("odds512", 8|16)
		for i := range v.lanes {
			DATA(4*i, U32(uint32(2*i+1)))
		}
		return
	}
	v.counts()
	v.edgeMasks()
	v.upper = GLOBL("upper256", 8|16)
	for i := range v.lanes {
		DATA(4*i, U32(0xffff0000))
	}
	v.nibbles = GLOBL("nibbles256", 8|16)
	for i := range v.lanes {
		DATA(4*i, U32(0x0f0f0f0f))
	}
	v.spreadCodes = GLOBL("spread256", 8|16)
	for i := range v.lanes {
		DATA(4*i, U32(uint32(2*i%v.lanes+2*i/v.lanes)))
	}
}

// counts emits the lane numbers.
func (v *vector) counts() {
	v.iota = GLOBL("iota"+v.name, 8|16) // RODATA, NOPTR
	for i := range 2 * v.lanes {
		DATA(4*i, U32(uint32(i)))
	}
}

// zips emits the constants that interleave two halves.
func (v *vector) zips() {
	v.zip = GLOBL("zip512", 8|16)
	place := 0
	for _, x := range []struct{ first, apart int }{{0, v.lanes}, {0, 2 * v.lanes}, {v.lanes, 2 * v.lanes}} {
		for i := range v.lanes {
			DATA(place, U32(uint32(x.first+i|(x.first+x.apart+i)<<16)))
			place += 4
		}
	}
}

// zero clears a register.
func zero(z reg.VecPhysical) {
	if z.Size() == 64 {
		VPXORD(z, z, z)
		return
	}
	VXORPS(z, z, z)
}

// align aligns a loop for the decoder.
func align() {
	Instruction(&ir.Instruction{Opcode: "PCALIGN", Operands: []Op{U8(32)}})
}

// text starts a function. Of functions that differ in the number at the end of their names, the first has a comment.
func text(name, signature string, doc ...string) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
	if family := strings.TrimRight(name, "0123456789"); !documented[family] {
		documented[family] = true
		Doc(doc...)
	}
}

var documented = map[string]bool{}

// elem is an element type in memory; elements become float32 when loaded.
type elem struct {
	name string
	size int
}

var (
	f32  = elem{name: "F32", size: 4}
	f16  = elem{name: "F16", size: 2}
	bf16 = elem{name: "BF16", size: 2}
)

// load loads a register of elements and widens them. With a mask (AVX-512) it loads only the masked lanes and clears
// the others.
func (e elem) load(src Mem, dst reg.VecPhysical, mask ...reg.OpmaskPhysical) {
	if len(mask) > 0 {
		switch k := mask[0]; e {
		case f32:
			VMOVUPS_Z(src, k, dst)
		case f16:
			VCVTPH2PS_Z(src, k, dst)
		case bf16:
			VPMOVZXWD_Z(src, k, dst)
			VPSLLD(U8(16), dst, dst)
		}
		return
	}
	switch e {
	case f32:
		VMOVUPS(src, dst)
	case f16:
		VCVTPH2PS(src, dst)
	case bf16:
		VPMOVZXWD(src, dst)
		VPSLLD(U8(16), dst, dst)
	}
}

// mask512 sets the low n bits of the masks in turn, 16 to each. It uses n and
// tmp, and consumes up to 64 lanes.
func mask512(n, tmp reg.GPPhysical, masks ...reg.OpmaskPhysical) {
	MOVQ(I32(-1), tmp)
	BZHIQ(n, tmp, tmp)
	for i, k := range masks {
		if i > 0 {
			SHRQ(U8(16), tmp)
		}
		KMOVW(tmp.As32(), k)
	}
}

// mask256 sets the sign bit of lane i if first+i < n, for VMASKMOVPS.
func (v *vector) mask256(n reg.GPPhysical, tmp reg.VecPhysical, masks ...reg.VecPhysical) {
	VMOVD(n.As32(), tmp.AsX())
	VPBROADCASTD(tmp.AsX(), tmp)
	for i, m := range masks {
		VPCMPGTD(v.iota.Offset(32*i), tmp, m)
	}
}

// masksOf returns masks of n lanes, from K1 on or in the registers of masks. It uses tmp and may change n.
func (v *vector) masksOf(n reg.GPPhysical, tmp reg.VecPhysical, masks []reg.VecPhysical) []reg.Register {
	all := make([]reg.Register, len(masks))
	if v == avx2 {
		v.mask256(n, tmp, masks...)
		for i, m := range masks {
			all[i] = m
		}
		return all
	}
	bits := []reg.OpmaskPhysical{reg.K1, reg.K2, reg.K3}[:len(masks)]
	mask512(n, reg.RBX, bits...)
	for i, k := range bits {
		all[i] = k
	}
	return all
}

// loadMasked loads floats in the lanes of a mask, of AVX-512 or of mask256, and clears the others.
func loadMasked(src Mem, mask, dst reg.Register) {
	if mask.Kind() == reg.KindOpmask {
		VMOVUPS_Z(src, mask, dst)
		return
	}
	VMASKMOVPS(src, mask, dst)
}

// loadFew loads at most four lanes; see loadMasked.
func (v *vector) loadFew(src Mem, mask reg.Register, dst reg.VecPhysical) {
	if m, ok := mask.(reg.VecPhysical); ok {
		loadMasked(src, m.AsX(), dst.AsX())
		return
	}
	loadMasked(src, mask, dst)
}

// addMasked adds alpha times z to floats in memory, in the lanes of such a mask. It uses old.
func addMasked(z, alpha, mask, old reg.Register, to Mem) {
	loadMasked(to, mask, old)
	VFMADD231PS(z, alpha, old)
	if mask.Kind() == reg.KindOpmask {
		VMOVUPS(old, mask, to)
		return
	}
	VMASKMOVPS(old, mask, to)
}

// rowAt returns the address of row i, plus disp bytes. Every fourth row is at a base; the others are at multiples of
// the row stride, step, and of three times the stride, triple.
func rowAt(bases []reg.GPPhysical, step, triple reg.GPPhysical, i, disp int) Mem {
	m := Mem{Base: bases[i/4], Disp: disp}
	switch i % 4 {
	case 1, 2:
		m.Index, m.Scale = step, uint8(i%4)
	case 3:
		m.Index, m.Scale = triple, 1
	}
	return m
}

// param loads a parameter.
func param(name string, r reg.GPPhysical) { Load(Param(name), r) }

func sprintf(format string, args ...any) string { return fmt.Sprintf(format, args...) }
