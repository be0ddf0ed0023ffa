//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"fmt"
	"os"
	"unsafe"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/bytesize"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/weights"
)

// pageSize is that of the host: a variable for tests.
var pageSize = os.Getpagesize()

// extent is a stretch of the host's memory: whole pages.
type extent struct {
	from uintptr
	n    int
}

// window is what a block knows of the mapped file that it is a part of.
type window struct {
	at      extent
	tensors int // in it that are not freed; under the lock of memory
	keep    any // what keeps the file mapped
}

// copied counts the weights in mapped files that are not used in place.
type copied struct {
	bytes int64
	why   string // the last time
}

// inPlace makes a buffer of weights in a mapped file where they lie. A file of up to
// maxBuffer bytes is one buffer of Metal; of a longer one there are windows at the
// multiples of half as many, so that each tensor of up to that half lies whole in one;
// what is larger has one for itself. Windows are shared by the tensors in them. Where
// there is none, why says so; it is empty for what is in no mapped file.
func (d *Device) inPlace(src weights.Data) (b *buffer, why string) {
	v, ok := src.Keep.(*safetensors.View)
	if !ok || len(src.Bytes) == 0 {
		return nil, ""
	}
	file := v.Mapping()
	if len(file) == 0 {
		return nil, ""
	}
	base := uintptr(unsafe.Pointer(unsafe.SliceData(file)))
	off := int(uintptr(unsafe.Pointer(unsafe.SliceData(src.Bytes))) - base)
	if off < 0 || off > len(file)-len(src.Bytes) {
		return nil, "" // not the view's own bytes
	}
	if align := max(4, v.DType.Bits()/8); off%align != 0 {
		return nil, fmt.Sprintf("they lie at no multiple of %d bytes", align)
	}
	if base%uintptr(pageSize) != 0 {
		return nil, fmt.Sprintf("the file is not mapped at a multiple of its pages of %d bytes", pageSize)
	}
	from, n := d.windowOf(len(file), off, len(src.Bytes))
	m := &d.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ""
	}
	at := extent{base + uintptr(from), n}
	w := m.windows[at]
	if w == nil {
		w = &block{slot: d.system.wrap(unsafe.Pointer(unsafe.SliceData(file[from:])), n), bytes: n, use: usePages}
		if w.slot == 0 {
			return nil, "the device does not take the pages of files"
		}
		w.contents, w.at, w.keep = file[from:min(from+n, len(file))], at, src.Keep
		m.windows[at] = w
		m.live[w] = struct{}{}
		m.held[usePages] += int64(n)
	}
	w.tensors++
	return &buffer{dev: d, block: w, off: off - from, bytes: len(src.Bytes), readOnly: true}, ""
}

// windowOf is the window of a file of so many bytes that n bytes at off lie in.
func (d *Device) windowOf(file, off, n int) (from, bytes int) {
	most := int(d.traits.maxBuffer) / pageSize * pageSize
	all := pages(file)
	if all <= most {
		return 0, all
	}
	if step := most / 2 / pageSize * pageSize; step > 0 {
		from = off / step * step
		if bytes = min(most, all-from); off+n <= from+bytes {
			return from, bytes
		}
	}
	from = off / pageSize * pageSize
	return from, pages(off+n) - from
}

// pages rounds bytes up to whole pages.
func pages(bytes int) int { return (bytes + pageSize - 1) / pageSize * pageSize }

// leave ends a tensor of a window.
func (d *Device) leave(w *block) {
	m := &d.memory
	m.mu.Lock()
	w.tensors--
	last := w.tensors == 0
	if last && m.windows[w.at] == w {
		delete(m.windows, w.at)
	}
	m.mu.Unlock()
	if last {
		d.release(w)
	}
}

// Import gives a buffer of src: of its own pages where they are those of a mapped file
// that the device takes, else a copy.
func (d *Device) Import(src weights.Data) (backend.Buffer, error) {
	if err := d.alive(); err != nil {
		return nil, err
	}
	b, why := d.inPlace(src)
	if b != nil {
		return b, nil
	}
	whole, err := d.obtain(len(src.Bytes), useWeight, "imported weights")
	if err != nil {
		return nil, err
	}
	copy(whole.contents, src.Bytes)
	if why != "" {
		d.memory.mu.Lock()
		d.memory.copied.bytes += int64(len(src.Bytes))
		d.memory.copied.why = why
		d.memory.mu.Unlock()
	}
	return &buffer{dev: d, block: whole, bytes: len(src.Bytes), readOnly: true}, nil
}

// String says how much was copied; it is empty where nothing was.
func (c copied) String() string {
	if c.bytes == 0 {
		return ""
	}
	return fmt.Sprintf("%s of weights copied: %s", bytesize.Binary(c.bytes), c.why)
}
