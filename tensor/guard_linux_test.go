package tensor

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// beforeFault are n bytes behind which a page begins that must not be touched.
func beforeFault(t *testing.T, n int) []byte {
	page := unix.Getpagesize()
	size := (n + page) / page * page
	mem, err := unix.Mmap(-1, 0, size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	require.NoError(t, err)
	require.NoError(t, unix.Mprotect(mem[size:], unix.PROT_NONE))
	t.Cleanup(func() { require.NoError(t, unix.Munmap(mem)) })
	return mem[size-n : size : size]
}

// No conversion reads or writes a byte behind its slices.
func TestConversionsStayInTheirSlices(t *testing.T) {
	usual := streamFrom
	defer func() { streamFrom = usual }()
	const most = 200
	src, dst, wide := beforeFault(t, 8*most), beforeFault(t, 8*most), beforeFault(t, 4*most)
	each(t, func(t *testing.T) {
		for _, streamFrom = range []int{usual, 1} {
			for _, d := range numbers {
				for n := range most {
					size := bytesFor(n, d)
					raw, x := src[len(src)-size:], asFloats(wide[4*(most-n):])
					require.NoError(t, ToFloat32(x, raw, d))
					require.NoError(t, FromFloat32(dst[len(dst)-size:], x, d))
					require.NoError(t, Convert(dst[len(dst)-8*n:], F64, raw, d))
				}
			}
		}
	})
}
