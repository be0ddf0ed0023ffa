package safetensors

import (
	"io"
	"os"
	"sync"
)

const (
	// writeBuffer is the size of the buffer that collects small pieces.
	writeBuffer = 1 << 20
	// Larger pieces are passed to the system without a copy, at most
	// writeTogether bytes or mostPieces pieces per call. One large call lets the
	// kernel allocate large pages; one call for each tensor of 220 kB takes 1.5
	// times as long.
	writeTogether = 16 << 20
	mostPieces    = 1024 // limit of every system
)

// fileWriter writes a file sequentially, in few large calls.
type fileWriter struct {
	f       *os.File
	written int64    // bytes already in the file
	pending [][]byte // pieces to write next
	size    int      // of pending
	buffer  *[writeBuffer]byte
	used    int // bytes of buffer in use, for copies of small pieces
	tail    int // start in buffer of the copies that are not yet in pending
}

// buffers recycles the buffers of finished writers: a model has many files, and
// a cache very many.
var buffers = sync.Pool{New: func() any { return new([writeBuffer]byte) }}

// release returns the writer's buffer to the pool.
func (w *fileWriter) release() {
	if w.buffer != nil {
		buffers.Put(w.buffer)
		w.buffer = nil
	}
}

// Write writes p. The caller may change p afterwards.
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

// keep writes p without a copy. p must not change before flush.
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

// closeCopies adds the latest copies to the pending pieces as one piece.
func (w *fileWriter) closeCopies() {
	if w.tail < w.used {
		w.pending = append(w.pending, w.buffer[w.tail:w.used])
		w.size += w.used - w.tail
		w.tail = w.used
	}
}

// flush writes all pending pieces. After an error the file is unusable.
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
