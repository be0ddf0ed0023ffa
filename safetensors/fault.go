package safetensors

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"
)

// mapped are the mappings of files that are open, by their first byte: what says
// which file it was that could not be read.
var mapped struct {
	mu    sync.Mutex
	files map[uintptr]mappedFile
}

type mappedFile struct {
	size uintptr
	path string
}

// announce makes the mapping one that Fault knows.
func (r region) announce() {
	mapped.mu.Lock()
	defer mapped.mu.Unlock()
	if mapped.files == nil {
		mapped.files = map[uintptr]mappedFile{}
	}
	mapped.files[r.address()] = mappedFile{uintptr(len(r.data)), r.path}
}

// forget is called before the memory can be that of something else.
func (r region) forget() {
	mapped.mu.Lock()
	defer mapped.mu.Unlock()
	delete(mapped.files, r.address())
}

func (r region) address() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(r.data))) }

// Fault is the error of a mapped file that could not be read, given what
// recover has returned: the file has been cut short, or the disk fails. It wraps
// ErrFault, and is nil for every other panic.
//
// View.Use needs no such thing. It is for those who hold on to View.Bytes or a
// Hold, and read on goroutines of their own: each of these says
// debug.SetPanicOnFault(true), recovers, and hands what it has recovered to the
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

// addressed is the address of a fault, which another error may wrap.
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
