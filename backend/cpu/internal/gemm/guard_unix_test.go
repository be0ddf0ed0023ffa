//go:build unix

package gemm_test

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// guarded is memory of n bytes that ends where an inaccessible page begins:
// as a weight at the end of a mapped file, it must not be read beyond.
func guarded(tb cleaner, n int) unsafe.Pointer {
	page := unix.Getpagesize()
	size := (n + page - 1) / page * page
	mem, err := unix.Mmap(-1, 0, size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = unix.Munmap(mem) })
	if err := unix.Mprotect(mem[size:], unix.PROT_NONE); err != nil {
		tb.Fatal(err)
	}
	return unsafe.Pointer(&mem[size-n])
}
