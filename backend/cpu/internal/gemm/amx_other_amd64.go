//go:build amd64 && !purego && !linux

package gemm

// tilesAllowed reports false, because the operating system is not known to save the AMX registers.
func tilesAllowed() bool { return false }
