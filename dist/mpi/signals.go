//go:build linux && (mpi || cuda)

package mpi

import (
	"syscall"
	"unsafe"
)

// handlers holds the kernel's struct sigaction of each signal.
type handlers [32][4]uint64

// signalHandlers returns the handlers of all signals except real-time ones. Libraries such as
// UCX, which MPI loads, replace Go's handler of SIGSEGV and others: a fault would end the
// process instead of being a panic.
func signalHandlers() *handlers {
	h := new(handlers)
	for signal := 1; signal < len(h); signal++ {
		syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(signal), 0, uintptr(unsafe.Pointer(&h[signal])), unsafe.Sizeof(h[0][0]), 0, 0)
	}
	return h
}

// restore sets the handlers again. SIGKILL and SIGSTOP have none, which the kernel refuses.
func (h *handlers) restore() {
	for signal := 1; signal < len(h); signal++ {
		syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(signal), uintptr(unsafe.Pointer(&h[signal])), 0, unsafe.Sizeof(h[0][0]), 0, 0)
	}
}
