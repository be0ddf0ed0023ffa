package safetensors

import "sync/atomic"

// Hold keeps the bytes of a tensor valid until it is released. Use it if the
// work does not fit into one View.WithBytes. The file cannot be closed until then. It
// is safe for concurrent use.
type Hold struct {
	view     *View
	data     []byte
	released atomic.Bool
}

// Hold returns the bytes of the tensor. They are valid until Hold.Release and
// only while the Hold is reachable: release it after the last access, on every
// path. The bytes of a file that is not mapped are read now. Hold fails with
// ErrClosed, or with ErrFault if reading fails. Touching a mapped page that
// cannot be read crashes the program, as with View.Bytes, unless the program is
// prepared as described at Fault.
func (v *View) Hold() (*Hold, error) {
	m := v.file.mapping
	if !m.acquire() {
		return nil, v.file.errClosed()
	}
	if v.source == nil {
		v.expect()
		return &Hold{view: v, data: v.data}, nil
	}
	data, read, err := v.source.load()
	if err != nil {
		m.release()
		return nil, v.readError(read, err)
	}
	return &Hold{view: v, data: data}, nil
}

// Bytes returns the bytes, nil after Release. They must not be written to.
func (h *Hold) Bytes() []byte {
	if h.released.Load() {
		return nil
	}
	return h.data
}

// Release ends the hold: its bytes must not be accessed after this call.
// Further calls do nothing.
func (h *Hold) Release() {
	if !h.released.Swap(true) {
		h.view.file.mapping.release()
	}
}
