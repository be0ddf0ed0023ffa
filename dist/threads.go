package dist

import (
	"fmt"
	"os"
	"runtime"
)

// Threads returns the default number of threads of a rank on a host with localSize ranks:
// an equal share of the cores, and no more than the launcher lets this process use. If the
// launcher allows less than the share, note says so and how to change it.
func Threads(localSize int) (n int, note string) {
	n, note = threads(localSize, runtime.NumCPU(), hostCores())
	switch limit := runtime.GOMAXPROCS(0); {
	case os.Getenv("GOMAXPROCS") != "":
		n = min(n, limit) // of each process
	case limit < runtime.NumCPU():
		n = min(n, max(limit/localSize, 1)) // of a container, which its ranks share
	}
	return n, note
}

// threads computes the share of a rank and the note from the number of cores that it may
// use, allowed, and that of its host.
func threads(localSize, allowed, cores int) (n int, note string) {
	share := max(cores/localSize, 1)
	if allowed < share {
		note = fmt.Sprintf("the launcher lets this rank use %d of %d cores, %d would be its share of %d ranks on this host: start mpirun with --bind-to none, srun with --cpu-bind=none", allowed, cores, share, localSize)
	}
	return min(allowed, share), note
}
