package torchfile

import (
	"errors"
	"io"
	"sync"
)

// Sources of the bytes of storages.

// lender provides bytes of the file itself.
type lender interface {
	io.ReaderAt
	WithBytes(fn func(data []byte) error) error
	Close() error
}

// storedBytes is an uncompressed record.
type storedBytes struct {
	file lender
	at   int64
}

func (s storedBytes) withBytes(at, n int64, fn func([]byte) error) error {
	return s.file.WithBytes(func(data []byte) error { return fn(data[s.at+at:][:n]) })
}

func (s storedBytes) Close() error { return s.file.Close() }

// inflated is a deflated record. Reading it sequentially inflates it once and
// keeps nothing; a backward read inflates it again.
type inflated struct {
	file   lender
	extent extent
	cache  *cache

	mu sync.Mutex // guards the reader
	r  io.Reader  // nil before the first read and after an error
	at int64      // position in r
}

// ReadAt implements io.ReaderAt for the inflated bytes.
func (z *inflated) ReadAt(p []byte, off int64) (n int, err error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.r == nil || off < z.at {
		z.r, z.at = z.extent.open(z.file), 0
	}
	skipped, err := io.CopyN(io.Discard, z.r, off-z.at)
	z.at += skipped
	if err == nil {
		n, err = io.ReadFull(z.r, p)
		z.at += int64(n)
	}
	if err != nil {
		z.r = nil
		return n, z.extent.failed(err)
	}
	return n, nil
}

func (z *inflated) withBytes(at, n int64, fn func([]byte) error) error {
	data, err := z.cache.get(z)
	if err != nil {
		return err
	}
	return fn(data[at:][:n])
}

func (z *inflated) Close() error { return z.file.Close() }

// section is a tensor whose bytes are a section of a deflated record, in the
// same order.
type section struct {
	*io.SectionReader
	z *inflated
}

func (s section) Close() error { return s.z.Close() }

// cache keeps the last inflated record. Tensors that are not read sequentially
// come in groups from one storage.
type cache struct {
	mu     sync.Mutex
	stream *inflated
	data   []byte
}

func (c *cache) get(z *inflated) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stream == z {
		return c.data, nil
	}
	c.stream, c.data = nil, nil // keep only one record, also while the next one is inflated
	data, err := readSize(z.extent.open(z.file), z.extent.size)
	if err != nil {
		return nil, z.extent.failed(err)
	}
	c.stream, c.data = z, data
	return data, nil
}

// readSize reads size bytes. It allocates memory as bytes arrive, because there
// may be fewer than size promises.
func readSize(r io.Reader, size int64) ([]byte, error) {
	const first = 1 << 20
	b := make([]byte, 0, min(size, first))
	for int64(len(b)) < size {
		if len(b) == cap(b) {
			grown := make([]byte, len(b), min(size, int64(2*cap(b))))
			copy(grown, b)
			b = grown
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err != nil && int64(len(b)) < size {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return b, nil
}
