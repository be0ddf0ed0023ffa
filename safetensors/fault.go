package safetensors

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"
)

// mapped holds the mappings of open files by the address of their first byte, so
// that the file of a fault can be found.
var mapped struct {
	mu    sync.Mutex
	files map[uintptr]mappedFile
}

type mappedFile struct {
	size uintptr
	path string
}

// announce registers the mapping with Fault.
func (r region) announce() {
	mapped.mu.Lock()
	defer mapped.mu.Unlock()
	if mapped.files == nil {
		mapped.files = map[uintptr]mappedFile{}
	}
	mapped.files[r.address()] = mappedFile{uintptr(len(r.data)), r.path}
}

// forget unregisters the mapping. It must be called before the memory is
// reused.
func (r region) forget() {
	mapped.mu.Lock()
	defer mapped.mu.Unlock()
	delete(mapped.files, r.address())
}

func (r region) address() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(r.data))) }

// Fault converts the value returned by recover to an error if it is a failed
// read of a mapped file: the file was truncated, or the disk fails. The error
// wraps ErrFault. For every other panic Fault returns nil.
//
// View.WithBytes does not need Fault. It is for code that keeps View.Bytes or a Hold
// and reads in its own goroutines: each of them calls
// debug.SetPanicOnFault(true), recovers, and passes the recovered value to the
// goroutine that can end the work.
func Fault(recovered any) error {
	fault, ok := addressed(recovered)
	if !ok {
		return nil
	}
	mapped.mu.Lock()
	defer mapped.mu.Unlock()
	for begin, f := range mapped.files {
		if at := fault - begin; at < f.size {
			return fmt.Errorf("safetensors: %s: byte %d of the file: %w", f.path, at, ErrFault)
		}
	}
	return nil
}

// addressed returns the address of a fault, which another error may wrap.
func addressed(recovered any) (uintptr, bool) {
	err, ok := recovered.(error)
	if !ok {
		return 0, false
	}
	var fault interface {
		runtime.Error
		Addr() uintptr
	}
	if !errors.As(err, &fault) {
		return 0, false
	}
	return fault.Addr(), true
}
