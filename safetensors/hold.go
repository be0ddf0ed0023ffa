package safetensors

import "sync/atomic"

// Hold keeps the bytes of a tensor valid until it is released: for those who
// cannot do their work inside of one View.Use. The file cannot be closed in the
// meantime. It is safe for concurrent use.
type Hold struct {
	view     *View
	data     []byte
	released atomic.Bool
}

// Hold returns the bytes of the tensor, which are valid until Hold.Release as
// long as the Hold is reachable: release it after the last access, on every
// path, and both is true. A file that is not mapped is read now. It fails with
// ErrClosed, and with ErrFault where reading fails; a mapped page that cannot be
// read, on the other hand, crashes the program that touches it, as with
// View.Bytes, unless it is prepared as Fault says.
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

// Bytes returns the bytes, which must not be written to, nil after Release.
func (h *Hold) Bytes() []byte {
	if h.released.Load() {
		return nil
	}
	return h.data
}

// Release ends the hold: its bytes must not be touched any more. Further calls
// do nothing.
func (h *Hold) Release() {
	if !h.released.Swap(true) {
		h.view.file.mapping.release()
	}
}
