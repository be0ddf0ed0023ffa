//go:build (!amd64 && !arm64) || purego

package pool

// relax has no instruction to use here.
func relax(uint32) {}
