//go:build amd64 && !purego && !linux

package gemm

// tilesAllowed is false where the operating system is not known to save the
// registers of AMX.
func tilesAllowed() bool { return false }
