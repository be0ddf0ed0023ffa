//go:build (!amd64 && !arm64) || purego

package pool

// relax is a no-op: this architecture has no such instruction.
func relax(uint32) {}
