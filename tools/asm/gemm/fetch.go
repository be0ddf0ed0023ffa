package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// fetch emits the fetching of memory into the second-level cache, front to
// back.
func fetch() {
	const line = 64
	text("fetch", "func(p *byte, bytes int)", "fetches bytes > 0 bytes from p on.")
	param("p", reg.RSI)
	param("bytes", reg.RCX)
	Label("loop")
	PREFETCHT1(Mem{Base: reg.RSI})
	ADDQ(I32(line), reg.RSI)
	SUBQ(I32(line), reg.RCX)
	JG(LabelRef("loop"))
	RET()
}

// nextPage emits, for a loop that reads memory front to back, turn bytes at a
// time, the fetching of where the next page of 4 KiB begins, once on each page:
// the hardware follows a stream to the end of a page and begins anew on the
// next. With that a loop is faster than one that does nothing but read (Zen 4);
// asking for every line is slower than not asking. It works in tmp.
func nextPage(p, tmp reg.GPPhysical, turn int) {
	const page, line, lines = 4096, 64, 4 // as many lines as set the hardware going
	label := sprintf("page%d", turn)
	MOVQ(p, tmp)
	ANDQ(U32(uint32(page-turn)), tmp)
	JNZ(LabelRef(label))
	MOVQ(p, tmp)
	ORQ(U32(page-1), tmp)
	for i := range lines {
		PREFETCHT1(Mem{Base: tmp, Disp: 1 + i*line})
	}
	Label(label)
}
