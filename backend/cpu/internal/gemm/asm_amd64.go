//go:build amd64 && !purego

package gemm

import "unsafe"

// The signatures of the generated kernels; strides are in bytes.
type (
	tileAsm        = func(k int, a, b, c *float32, ldc, cols int, add bool, bias *float32, ahead int)
	tilesAsm       = func(k int, a, b *float32, panel int, c *float32, ldc, tiles int, add bool, ahead int)
	transposeAsm   = func(dst *float32, width int, src *byte, lane, rows, k int, alpha float32)
	copyAsm        = func(dst *float32, width int, src *byte, step, lanes, k int, alpha float32)
	acrossAsm      = func(dst *float32, panel int, src *byte, step, panels, k int)
	dotsAsm        = func(k int, x *float32, ldx int, w *byte, ldw, n int, out *float32, ldo int)
	directAsm      = func(k int, a *float32, arow, acol int, b *byte, ldb int, c *float32, ldc, cols int, alpha float32)
	outerAsm       = func(k int, a *float32, step int, b *float32, ldb, ahead, apart int, c *float32, ldc, cols int, alpha float32)
	blockAsm       = func(k int, x *float32, ldx int, w *float32, c *float32, ldc, ahead int, alpha float32)
	fanAsm         = func(k int, x *float32, ldx int, w *float32, c *float32, ldc, cols, ahead int, alpha float32)
	gridAsm        = func(k int, x *float32, w *byte, ldw int, c *float32, ldc, skip, ahead int, alpha float32)
	packColumnsAsm = func(dst *float32, to int, src *byte, step, rows, k int, alpha float32)
	packRowsAsm    = func(dst *float32, step int, src *byte, lane, rows, k int, alpha float32)
	panelAsm       = func(dst *float32, step int, x *float32, k int)
)

func fetchAhead(p unsafe.Pointer, bytes int) { fetch((*byte)(p), bytes) }
