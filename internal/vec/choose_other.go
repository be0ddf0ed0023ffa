//go:build (!amd64 && !arm64) || purego

package vec

func choose() *kernels { return &portable }

// available lists the implementations for this machine, best last.
func available() []*kernels { return []*kernels{&portable} }
