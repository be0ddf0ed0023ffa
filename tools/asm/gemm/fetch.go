package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// fetch emits the prefetch of memory into the second-level cache, sequentially.
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

// nextPage emits a prefetch of the start of the next 4 KiB page, once per page, for a loop that reads memory
// sequentially, turn bytes at a time. The hardware prefetcher stops at the end of a page. With nextPage a loop is
// faster than a plain read loop (Zen 4); prefetching every line is slower than none. It uses tmp.
func nextPage(p, tmp reg.GPPhysical, turn int) {
	const page, line, lines = 4096, 64, 4 // enough lines to start the hardware prefetcher
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
