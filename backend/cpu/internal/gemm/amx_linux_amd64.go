//go:build !purego

package gemm

import (
	"sync"
	"syscall"
)

// tilesAllowed asks Linux for the registers of AMX, which a process has to do
// before it uses them: their 8 KiB enlarge what is saved for a signal. It fails
// where a thread's stack for signals is too small for that.
var tilesAllowed = sync.OnceValue(func() bool {
	const requestPermission, tileData = 0x1023, 18 // ARCH_REQ_XCOMP_PERM
	_, _, errno := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return errno == 0
})
