//go:build unix

package cpu

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// allocate maps zeroed memory outside of Go's heap: the collector neither
// scans nor counts it, and pages that are never touched cost nothing.
func allocate(bytes int) (*buffer, error) {
	if bytes == 0 {
		return &buffer{}, nil
	}
	data, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	advise(data)
	b := &buffer{data: data}
	// A forgotten Free is made good when the buffer is collected.
	stop := runtime.AddCleanup(b, func(d []byte) { _ = unix.Munmap(d) }, data)
	b.release = func() {
		stop.Stop()
		_ = unix.Munmap(data)
	}
	return b, nil
}
