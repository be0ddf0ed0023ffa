package safetensors

import (
	"errors"
	"io"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"unsafe"
)

// mapping is what a File holds: the bytes in memory, or a file that is read when
// they are asked for. It is given back when it is closed, or, where bytes have
// been handed out for good, when the garbage collector finds nobody who refers
// to it.
type mapping struct {
	data    []byte
	state   atomic.Int64 // number of users, plus the two flags
	region  region
	cleanup runtime.Cleanup
	ahead   readAhead
}

// Flags in mapping.state. They share a word with the number of users, so that
// closing and using exclude each other without a lock.
const (
	pinned = 1 << 40 // bytes were handed out
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

// region is what may have to be given back. How memory is depends on the
// operating system.
type region struct {
	data   []byte
	mapped bool      // data must be unmapped
	path   string    // of the file that is mapped
	file   io.Closer // must be closed, where there is one
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

// shut stops all further use, unless there are users. first tells the one caller
// who has to free the mapping from those who come later.
func (m *mapping) shut() (first bool, users int64) {
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

// reopen takes shut back.
func (m *mapping) reopen() { m.state.And(^closed) }

// free gives back what a shut mapping holds, if that is safe.
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

// guarded runs fn, which reads the mapping. A page that cannot be read ends fn:
// then it is not ok, and at is the place in the file. That holds for what fn does
// itself, calls included, and for goroutines that it starts where these bring
// their panics back to it.
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
			panic(r) // fn's own
		}
		ok = false
	}()
	fn()
	return 0, true
}

// faultOffset returns the place in the file where reading the mapping has
// failed, given what the failed access panicked with.
func (m *mapping) faultOffset(recovered any) (at int64, ok bool) {
	fault, ok := addressed(recovered)
	if !ok || len(m.data) == 0 {
		return 0, false
	}
	at = int64(fault - uintptr(unsafe.Pointer(unsafe.SliceData(m.data))))
	return at, at >= 0 && at < int64(len(m.data))
}
