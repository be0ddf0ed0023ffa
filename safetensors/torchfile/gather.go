package torchfile

import (
	"fmt"
	"io"
)

// gather produces the bytes of a tensor that is stored in another form: strided,
// in the other byte order, or negated. It is an io.ReaderAt over the tensor in
// the form of safetensors: row-major, little-endian, without gaps.
type gather struct {
	view
	from spans
}

// spans provides bytes of a storage.
type spans interface {
	withBytes(at, n int64, fn func(data []byte) error) error
	Close() error
}

// Close closes the file that contains the storage; see safetensors.ExternalTensor.
func (g *gather) Close() error { return g.from.Close() }

// ReadAt gathers the bytes from offset off.
func (g *gather) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("torchfile: read at %d", off)
	}
	if off >= g.size {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), g.size-off)]
	err = g.from.withBytes(g.offset, g.span, func(storage []byte) error {
		n = g.read(want, storage, off)
		return nil
	})
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// read fills p with the bytes from offset off. The first and the last element
// may be partial.
func (g *gather) read(p, storage []byte, off int64) int {
	n := 0
	item := int64(g.item)
	if within := off % item; within != 0 {
		n = copy(p, g.element(storage, off/item)[within:])
	}
	whole := (len(p) - n) / g.item * g.item
	g.fill(p[n:n+whole], storage, (off+int64(n))/item)
	n += whole
	if n < len(p) {
		n += copy(p[n:], g.element(storage, (off+int64(n))/item))
	}
	return n
}

func (g *gather) element(storage []byte, number int64) []byte {
	b := make([]byte, g.item)
	g.fill(b, storage, number)
	return b
}

// fill gathers whole elements, starting with element number.
func (g *gather) fill(dst, storage []byte, number int64) {
	all := dst
	last := len(g.shape) - 1
	if last < 0 {
		copy(dst, storage)
		dst = nil
	}
	var room [8]int64
	index := append(room[:0], g.shape...) // reduced to the coordinates of the element
	var at int64                          // position in the storage, in elements
	for i := last; i >= 0; i-- {
		index[i] = number % g.shape[i]
		number /= g.shape[i]
		at += index[i] * g.stride[i]
	}
	for len(dst) > 0 {
		moved, run := last, min(g.shape[last]-index[last], int64(len(dst)/g.item))
		src := storage[at*int64(g.item):]
		size := int(run) * g.item
		if rows := g.rows(index, len(dst)); rows > 1 {
			moved, run = last-1, int64(rows)
			size = rows * int(g.shape[last]) * g.item
			g.copyRows(dst[:size], src, rows)
		} else {
			copyStrided(dst[:size], src, g.item*int(g.stride[last]), g.item)
		}
		dst = dst[size:]
		at += run * g.stride[moved]
		index[moved] += run
		for i := moved; i > 0 && index[i] == g.shape[i]; i-- { // carry to the next row
			at += g.stride[i-1] - index[i]*g.stride[i]
			index[i] = 0
			index[i-1]++
		}
	}
	g.finish(all)
}

// rows returns the number of whole rows to copy together, 0 if copying them one
// at a time is as fast. In a transposed matrix, neighbors in a column are
// neighbors in memory: copying row by row would load the whole matrix into the
// cache for every row.
func (g *gather) rows(index []int64, room int) int {
	const most = 16 // number of 4-byte elements in a cache line
	last := len(g.shape) - 1
	if last == 0 || index[last] != 0 || g.stride[last-1] >= g.stride[last] {
		return 0
	}
	return int(min(most, g.shape[last-1]-index[last-1], int64(room/g.item)/g.shape[last]))
}

// copyRows copies rows, a few columns at a time.
func (g *gather) copyRows(dst, src []byte, rows int) {
	const columns = 8
	last := len(g.shape) - 1
	across, down := g.item*int(g.stride[last]), g.item*int(g.stride[last-1])
	row := len(dst) / rows
	for from := 0; from < row; from += columns * g.item {
		size := min(columns*g.item, row-from)
		for r := range rows {
			copyStrided(dst[r*row+from:][:size], src[r*down+from/g.item*across:], across, g.item)
		}
	}
}

// copyStrided fills dst with elements that are step bytes apart.
func copyStrided(dst, src []byte, step, item int) {
	switch {
	case step == item:
		copy(dst, src)
	case item == 1:
		for i := range dst {
			dst[i] = src[i*step]
		}
	case item == 2:
		for i, at := 0, 0; i < len(dst); i, at = i+2, at+step {
			le.PutUint16(dst[i:], le.Uint16(src[at:]))
		}
	case item == 4:
		for i, at := 0, 0; i < len(dst); i, at = i+4, at+step {
			le.PutUint32(dst[i:], le.Uint32(src[at:]))
		}
	default: // 8, and 16 if such elements are ever stored
		for i, at := 0, 0; i < len(dst); i, at = i+item, at+step {
			copy(dst[i:i+item], src[at:])
		}
	}
}

// finish converts the elements to little-endian and negates the ones marked by
// flip.
func (g *gather) finish(b []byte) {
	switch g.swap {
	case 2:
		for i := 0; i < len(b); i += 2 {
			le.PutUint16(b[i:], be.Uint16(b[i:]))
		}
	case 4:
		for i := 0; i < len(b); i += 4 {
			le.PutUint32(b[i:], be.Uint32(b[i:]))
		}
	case 8:
		for i := 0; i < len(b); i += 8 {
			le.PutUint64(b[i:], be.Uint64(b[i:]))
		}
	}
	if g.flip == flipNone {
		return
	}
	first, step := g.number, g.number // offset of the first number's sign, past its end
	if g.flip != flipAll {
		step *= 2
	}
	if g.flip == flipOdd {
		first *= 2
	}
	for i := first - 1; i < len(b); i += step {
		b[i] ^= 0x80
	}
}
