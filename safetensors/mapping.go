package safetensors

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// mapping is the bytes of a file in memory. It is unmapped when it is closed,
// or, where bytes have been handed out for good, when the garbage collector
// finds nobody who refers to it.
type mapping struct {
	data    []byte
	state   atomic.Int64 // number of users, plus the two flags
	region  region
	cleanup runtime.Cleanup
}

// Flags in mapping.state. They share a word with the number of users, so that
// closing and using exclude each other without a lock.
const (
	pinned = 1 << 40 // bytes were handed out
	closed = 1 << 41
)

func newMapping(r region) *mapping {
	m := &mapping{data: r.data, region: r}
	if r.mapped {
		m.cleanup = runtime.AddCleanup(m, func(r region) { _ = r.unmap() }, r)
	}
	return m
}

// region is memory that may have to be given back. How that is done depends on
// the operating system.
type region struct {
	data   []byte
	mapped bool // data must be unmapped
}

// acquire keeps the mapping open until release.
func (m *mapping) acquire() bool {
	for {
		state := m.state.Load()
		if state&closed != 0 {
			return false
		}
		if m.state.CompareAndSwap(state, state+1) {
			return true
		}
	}
}

func (m *mapping) release() { m.state.Add(-1) }

// pin leaves unmapping to the garbage collector.
func (m *mapping) pin() bool {
	for {
		state := m.state.Load()
		if state&closed != 0 {
			return false
		}
		if state&pinned != 0 || m.state.CompareAndSwap(state, state|pinned) {
			return true
		}
	}
}

// shut stops all further use. It is not ok where there are users; first tells
// the one caller who has to free the mapping from those who come later.
func (m *mapping) shut() (first, ok bool) {
	for {
		state := m.state.Load()
		if state&closed != 0 {
			return false, true
		}
		if state&^pinned != 0 {
			return false, false
		}
		if m.state.CompareAndSwap(state, state|closed) {
			return true, true
		}
	}
}

// reopen takes shut back.
func (m *mapping) reopen() { m.state.And(^closed) }

// free gives the memory of a shut mapping back, if that is safe.
func (m *mapping) free() error {
	if !m.region.mapped || m.state.Load()&pinned != 0 {
		return nil
	}
	m.cleanup.Stop()
	m.region.mapped = false
	return m.region.unmap()
}

func (m *mapping) isClosed() bool { return m.state.Load()&closed != 0 }

// faultOffset returns the place in the file where reading the mapping has
// failed, given what the failed access panicked with.
func (m *mapping) faultOffset(recovered any) (at int64, ok bool) {
	fault, ok := recovered.(interface {
		runtime.Error
		Addr() uintptr
	})
	if !ok || len(m.data) == 0 {
		return 0, false
	}
	at = int64(fault.Addr() - uintptr(unsafe.Pointer(unsafe.SliceData(m.data))))
	return at, at >= 0 && at < int64(len(m.data))
}
