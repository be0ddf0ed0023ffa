package vec

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// No kernel reads or writes a byte behind its slices: each ends where a page
// begins that must not be touched.
func TestKernelsStayInTheirSlices(t *testing.T) {
	page := unix.Getpagesize()
	each(t, func(t *testing.T) {
		for n := range 70 {
			var maps [][]byte
			everyKernel(n, func(seed uint64, n int) []float32 {
				size := (4*n + page - 1) / page * page
				mem, err := unix.Mmap(-1, 0, size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
				require.NoError(t, err)
				require.NoError(t, unix.Mprotect(mem[size:], unix.PROT_NONE))
				maps = append(maps, mem)
				if n == 0 {
					return nil
				}
				x := unsafe.Slice((*float32)(unsafe.Pointer(&mem[size-4*n])), n)
				copy(x, random(seed, n, 2))
				return x
			})
			for _, m := range maps {
				require.NoError(t, unix.Munmap(m))
			}
		}
	})
}
