package safetensors

import (
	"io"
	"os"
	"sync"
)

const (
	// Small pieces are copied into a buffer of this size.
	writeBuffer = 1 << 20
	// The rest is handed to the system where it lies, this many bytes or pieces
	// at once: from one large call the kernel fills large pages, where a call for
	// each tensor of 220 kB takes half as long again.
	writeTogether = 16 << 20
	mostPieces    = 1024 // no system takes more
)

// fileWriter writes a file from front to back, in few and large calls.
type fileWriter struct {
	f       *os.File
	written int64    // in the file already
	pending [][]byte // comes next
	size    int      // of pending
	buffer  *[writeBuffer]byte
	used    int // bytes of buffer, copies of small pieces
	tail    int // where in buffer those begin that are not yet among pending
}

// buffers are those of writers that are done: a model has many files, and a
// cache very many.
var buffers = sync.Pool{New: func() any { return new([writeBuffer]byte) }}

// release ends the use of the writer.
func (w *fileWriter) release() {
	if w.buffer != nil {
		buffers.Put(w.buffer)
		w.buffer = nil
	}
}

// Write writes p, which may change afterwards.
func (w *fileWriter) Write(p []byte) (int, error) {
	var err error
	if len(p) <= writeBuffer {
		err = w.copy(p)
	} else {
		w.add(p)
		err = w.flush()
	}
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// keep writes p, which must not change before flush.
func (w *fileWriter) keep(p []byte) error {
	if len(p) < copyBelow {
		return w.copy(p)
	}
	w.add(p)
	if w.size >= writeTogether || len(w.pending) >= mostPieces-1 {
		return w.flush()
	}
	return nil
}

func (w *fileWriter) copy(p []byte) error {
	if len(p) > writeBuffer-w.used {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if w.buffer == nil {
		w.buffer = buffers.Get().(*[writeBuffer]byte)
	}
	w.used += copy(w.buffer[w.used:], p)
	return nil
}

func (w *fileWriter) add(p []byte) {
	w.closeCopies()
	w.pending = append(w.pending, p)
	w.size += len(p)
}

// closeCopies makes the latest copies one of the pending pieces.
func (w *fileWriter) closeCopies() {
	if w.tail < w.used {
		w.pending = append(w.pending, w.buffer[w.tail:w.used])
		w.size += w.used - w.tail
		w.tail = w.used
	}
}

// flush writes all that is pending. After an error there is nothing more to be
// done with the file.
func (w *fileWriter) flush() error {
	w.closeCopies()
	for rest := w.pending; len(rest) > 0; {
		n, err := writePieces(w.f, rest)
		w.written += int64(n)
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrShortWrite
		}
		for len(rest) > 0 && n >= len(rest[0]) {
			n -= len(rest[0])
			rest = rest[1:]
		}
		if n > 0 {
			rest[0] = rest[0][n:]
		}
	}
	clear(w.pending)
	w.pending, w.size = w.pending[:0], 0
	w.used, w.tail = 0, 0
	return nil
}
