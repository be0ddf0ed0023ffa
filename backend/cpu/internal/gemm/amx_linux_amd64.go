//go:build !purego

package gemm

import (
	"sync"
	"syscall"
)

// tilesAllowed requests the AMX registers from Linux, which a process must do before it uses them: their 8 KiB
// enlarge the signal frame. It fails if a thread's signal stack is too small for that.
var tilesAllowed = sync.OnceValue(func() bool {
	const requestPermission, tileData = 0x1023, 18 // ARCH_REQ_XCOMP_PERM
	_, _, errno := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return errno == 0
})
