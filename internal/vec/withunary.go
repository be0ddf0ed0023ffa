//go:build (amd64 || arm64) && !purego

package vec

// withUnary adds the portable functions to the given ones.
func withUnary(fast map[Unary]func(dst, x []float32)) [unaryCount]func(dst, x []float32) {
	t := portableUnary()
	for op, f := range fast {
		t[op] = f
	}
	return t
}
