//go:build arm64 && !purego

package gemm

// The signatures of the generated kernels; strides are in bytes.
type (
	tileAsm      = func(k int, a, b, c *float32, ldc, cols int, add bool, bias *float32)
	transposeAsm = func(dst *float32, width int, src *byte, lane, rows, k int, alpha float32)
	copyAsm      = func(dst *float32, width int, src *byte, step, k int, alpha float32)
	partAsm      = func(dst *float32, width int, src *byte, step, lanes, k int, alpha float32)
	dotsAsm      = func(k int, x *float32, ldx int, w *byte, ldw, n int, out *float32, ldo int)
	directAsm    = func(k int, a *float32, arow, acol int, b *byte, ldb int, c *float32, ldc int, alpha float32)
)
