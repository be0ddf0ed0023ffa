//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"fmt"
	"os"
	"sync"
	"unsafe"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/internal/bytesize"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/safetensors"
)

// pageSize is the page size of the host. It is a variable for tests.
var pageSize = os.Getpagesize()

// extent is a range of whole pages in host memory.
type extent struct {
	from uintptr
	n    int
}

// window is a block that is a part of a mapped file. Tensors share it.
type window struct {
	*gpu.Block
	dev     *Device
	at      extent
	tensors int // in it that are not freed
}

// copied counts the weights in mapped files that are not used in place.
type copied struct {
	mu    sync.Mutex
	bytes int64
	why   string // the last time
}

// inPlace returns a buffer that uses weights of a mapped file in place. A file of up to maxBuffer bytes is one Metal
// buffer. A longer file has windows of maxBuffer bytes that start at multiples of half that size, so each tensor of up
// to half that size is within one window; larger tensors get their own. Tensors share windows. If no buffer is
// possible, why gives the reason; it is empty for weights that are not in a mapped file.
func (d *Device) inPlace(src weights.Data) (b *gpu.Buffer, why string) {
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
	at := extent{base + uintptr(from), n}
	w := d.windows[at]
	if w == nil {
		place := d.system.wrap(unsafe.Pointer(unsafe.SliceData(file[from:])), n)
		if place == 0 {
			return nil, "the device does not take the pages of files"
		}
		w = &window{dev: d, at: at, Block: &gpu.Block{At: place, Host: file[from:min(from+n, len(file))], Bytes: n, Use: gpu.UsePages, Keep: src.Keep}}
		d.windows[at] = w
		d.Adopt(w.Block)
	}
	w.tensors++
	return d.Weight(w.Block, off-from, len(src.Bytes), w), ""
}

// Release ends a tensor of the window.
func (w *window) Release() bool {
	w.tensors--
	if w.tensors > 0 {
		return false
	}
	delete(w.dev.windows, w.at)
	return true
}

// windowOf returns the window of a file that contains the n bytes at off.
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

// Import returns a buffer of src. It uses the pages of src if they belong to a mapped file and the device accepts
// them, otherwise a copy.
func (d *Device) Import(src weights.Data) (backend.Buffer, error) {
	if err := d.Alive(); err != nil {
		return nil, err
	}
	var b *gpu.Buffer
	var why string
	if err := d.Do(func() error { b, why = d.inPlace(src); return nil }); err != nil {
		return nil, err
	}
	if b != nil {
		return b, nil
	}
	whole, err := d.Request(len(src.Bytes), gpu.UseWeight, "imported weights")
	if err != nil {
		return nil, err
	}
	copy(whole.Host, src.Bytes)
	if why != "" {
		d.copied.add(len(src.Bytes), why)
	}
	return d.Weight(whole, 0, len(src.Bytes), nil), nil
}

func (c *copied) add(bytes int, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes += int64(bytes)
	c.why = why
}

// String describes how much was copied; it is empty if nothing was.
func (c *copied) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bytes == 0 {
		return ""
	}
	return fmt.Sprintf("%s of weights copied: %s", bytesize.Binary(c.bytes), c.why)
}
