//go:build (amd64 || arm64) && !purego

package pool

// relax tells the core n times that it is in a spin loop: about 40 ns each on
// a recent amd64 core.
//
//go:noescape
func relax(n uint32)
