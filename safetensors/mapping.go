package safetensors

import (
	"errors"
	"io"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"unsafe"
)

// mapping is the storage of a File: bytes in memory, or a file that is read on
// demand. It is freed when the File is closed or, if bytes have been returned
// without a release, when they are garbage.
type mapping struct {
	data    []byte
	state   atomic.Int64 // number of users, plus two flags
	region  region
	cleanup runtime.Cleanup
	ahead   readAhead
}

// Flags in mapping.state. They share a word with the number of users, so that
// closing and using exclude each other without a lock.
const (
	pinned = 1 << 40 // bytes were returned without a release
	closed = 1 << 41
)

func newMapping(r region) *mapping {
	m := &mapping{data: r.data, region: r}
	if r.path != "" {
		r.announce()
	}
	if r.owned() {
		m.cleanup = runtime.AddCleanup(m, func(r region) { _ = r.free() }, r)
	}
	return m
}

// region is memory or a file to free. How memory is freed depends on the
// operating system.
type region struct {
	data   []byte
	mapped bool      // data must be unmapped
	path   string    // of the mapped file
	file   io.Closer // to close, if not nil
}

func (r region) owned() bool { return r.mapped || r.file != nil }

func (r region) free() error {
	var err error
	if r.file != nil {
		err = r.file.Close()
	}
	if r.path != "" {
		r.forget()
	}
	if r.mapped {
		err = errors.Join(err, r.unmap())
	}
	return err
}

// acquire keeps the mapping open until release. It returns false if the mapping
// is closed.
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

// pin defers unmapping to the garbage collector. It returns false if the
// mapping is closed.
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

// retire closes the mapping unless it has users. first is true for the one caller
// who must free the mapping.
func (m *mapping) retire() (first bool, users int64) {
	for {
		state := m.state.Load()
		if state&closed != 0 {
			return false, 0
		}
		if users := state &^ pinned; users != 0 {
			return false, users
		}
		if m.state.CompareAndSwap(state, state|closed) {
			return true, 0
		}
	}
}

// reopen undoes shut.
func (m *mapping) reopen() { m.state.And(^closed) }

// free frees a closed mapping, unless its bytes may still be in use.
func (m *mapping) free() error {
	if !m.region.owned() || m.state.Load()&pinned != 0 {
		return nil
	}
	m.cleanup.Stop()
	r := m.region
	m.region = region{}
	return r.free()
}

func (m *mapping) isClosed() bool { return m.state.Load()&closed != 0 }

// guarded runs fn, which reads the mapping. A page that cannot be read ends fn;
// then ok is false and at is the offset in the file. This covers the calls of fn,
// and goroutines started by fn if they pass their panics back to it.
func (m *mapping) guarded(fn func()) (at int64, ok bool) {
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		r := recover()
		if r == nil {
			return
		}
		var mine bool
		if at, mine = m.faultOffset(r); !mine {
			panic(r) // raised by fn itself
		}
		ok = false
	}()
	fn()
	return 0, true
}

// faultOffset returns the offset in the file at which reading the mapping
// failed, given the value that the access panicked with.
func (m *mapping) faultOffset(recovered any) (at int64, ok bool) {
	fault, ok := addressed(recovered)
	if !ok || len(m.data) == 0 {
		return 0, false
	}
	at = int64(fault - uintptr(unsafe.Pointer(unsafe.SliceData(m.data))))
	return at, at >= 0 && at < int64(len(m.data))
}
