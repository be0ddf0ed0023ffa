package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// kernel is a conversion to float32, called widening, or from float32.
type kernel struct {
	name, doc string
	from, to  int  // bits per element
	light     bool // takes only a few instructions
	setup     func(v *isa) body
}

// body emits the conversion of 16 elements.
type body func(dst, src Mem)

const group = 16

// ahead is the prefetch distance in bytes of streaming kernels. It was best or equal among 512 to 4096 for wide and
// narrow sources on Zen 4; 512 made wide ones slower than no prefetch.
const ahead = 2048

// emit writes the function. A light kernel converts four groups per iteration, to amortize the loop overhead. Every
// kernel can stream: it then stores past the cache, which needs a dst aligned to 64 bytes and whole iterations.
func (k kernel) emit(v *isa) {
	TEXT(k.name+v.suffix, NOSPLIT, "func(dst, src *byte, n int, stream bool)")
	Pragma("noescape")
	if v == avx2 { // the others do the same
		Doc(k.name + v.suffix + " " + k.doc)
	}
	dst, src, n := GP64(), GP64(), GP64()
	Load(Param("dst"), dst)
	Load(Param("src"), src)
	Load(Param("n"), n)
	f := k.setup(v)
	turn := func(groups int) {
		for i := range groups {
			f(Mem{Base: dst, Disp: i * group * k.to / 8}, Mem{Base: src, Disp: i * group * k.from / 8})
		}
		ADDQ(I32(groups*group*k.to/8), dst)
		ADDQ(I32(groups*group*k.from/8), src)
	}
	stream := GP8()
	Load(Param("stream"), stream)
	TESTB(stream, stream)
	JNE(LabelRef("streamed"))

	for _, groups := range []int{4, 1} {
		if groups > 1 && !k.light {
			continue
		}
		step := groups * group
		loop, done := "loop"+string(rune('0'+groups)), "done"+string(rune('0'+groups))
		SUBQ(I32(step), n)
		JLT(LabelRef(done))
		Label(loop)
		turn(groups)
		SUBQ(I32(step), n)
		JGE(LabelRef(loop))
		Label(done)
		if groups > 1 {
			ADDQ(I32(step), n)
		}
	}
	VZEROUPPER()
	RET()

	Label("streamed")
	v.stream = true
	for line := 0; line < 4*group*k.from/8; line += 64 {
		PREFETCHNTA(Mem{Base: src, Disp: ahead + line})
	}
	turn(4)
	v.stream = false
	SUBQ(I32(4*group), n)
	JGT(LabelRef("streamed"))
	SFENCE()
	VZEROUPPER()
	RET()
}
