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
	const page = 4096
	label := sprintf("page%d", turn)
	MOVQ(p, tmp)
	ANDQ(U32(uint32(page-turn)), tmp)
	JNZ(LabelRef(label))
	MOVQ(p, tmp)
	ORQ(U32(page-1), tmp)
	streamHead(Mem{Base: tmp, Disp: 1})
	Label(label)
}

// nextRow is nextPage at the beginning of a row, for the one step bytes behind
// it: that is on another page where only a part of each row is read.
func nextRow(p, step reg.GPPhysical) { streamHead(Mem{Base: p, Index: step, Scale: 1}) }

// streamHead emits the fetching of as many lines as set the hardware going.
func streamHead(m Mem) {
	const line, lines = 64, 4
	for i := range lines {
		PREFETCHT1(m.Offset(i * line))
	}
}
