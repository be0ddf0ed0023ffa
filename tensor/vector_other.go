//go:build (!amd64 && !arm64) || purego

package tensor

func choose() isa { return portable }

// available lists the instruction sets of this machine, best last.
func available() []isa { return []isa{portable} }

// vectorWiden returns 0: there are no kernels.
func vectorWiden([]float32, []byte, DType) int { return 0 }

// vectorNarrow is the inverse of vectorWiden.
func vectorNarrow([]byte, []float32, DType) int { return 0 }
