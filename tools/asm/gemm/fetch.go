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
