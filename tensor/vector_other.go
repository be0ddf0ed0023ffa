//go:build (!amd64 && !arm64) || purego

package tensor

func choose() isa { return portable }

// available lists the instruction sets that this machine runs, best last.
func available() []isa { return []isa{portable} }

// vectorWiden converts as many elements as the instruction set has kernels for
// and returns their number: none.
func vectorWiden([]float32, []byte, DType) int { return 0 }

// vectorNarrow is the inverse of vectorWiden.
func vectorNarrow([]byte, []float32, DType) int { return 0 }
