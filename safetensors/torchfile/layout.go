package torchfile

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"

	"github.com/lorafuse/lorafuse/safetensors"
)

// placed is a tensor with everything needed to read it; the location of its
// elements has been checked against the file.
type placed struct {
	name   string
	dtype  safetensors.DType
	shape  []int
	extent extent
	view   view
	// inPlace reports that the file contains the tensor's bytes in the final form,
	// from offset.
	inPlace bool
	offset  int64
}

// view describes how to construct the bytes of a tensor from the bytes of its
// storage.
type view struct {
	offset int64   // bytes before the first element
	span   int64   // bytes from the first element to the end of the last, 0 if there are none
	size   int64   // bytes of the tensor
	item   int     // bytes of an element
	shape  []int64 // of a tensor with the same elements in the same order and as few dimensions as possible
	stride []int64 // in elements
	swap   int     // number of bytes to reverse: 2, 4, 8, or 0 for none
	flip   flip    // the numbers to negate
	number int     // bytes per number
}

type flip uint8

const (
	flipNone flip = iota
	flipAll
	flipOdd  // the imaginary parts
	flipEven // the real parts: both conj and neg
)

// layout returns all tensors of the checkpoint with their locations.
func (c *checkpoint) layout() ([]placed, error) {
	found, err := flatten(c.root, isTensor, false)
	if err != nil {
		return nil, err
	}
	tensors := make([]placed, 0, len(found))
	var expanded int64
	for _, n := range found {
		t, ok := n.value.(*tensor)
		if !ok {
			t = n.value.(*storage).tensor()
		}
		p, err := c.place(n.name, t)
		if err != nil {
			return nil, err
		}
		if p.view.size > p.view.span {
			expanded = min(expanded+p.view.size, maxExpanded+1)
		}
		if expanded > maxExpanded {
			return nil, ofTensor(n.name, ErrLimit, "tensors that repeat their elements, of more than "+byteCount(maxExpanded)+" together", "")
		}
		tensors = append(tensors, p)
	}
	return tensors, nil
}

// tensor returns the storage as a one-dimensional tensor.
func (s *storage) tensor() *tensor {
	return &tensor{storage: s, dtype: s.dtype, size: []int64{s.count}, stride: []int64{1}}
}

func (c *checkpoint) place(name string, t *tensor) (placed, error) {
	switch {
	case t.storage == nil:
		return placed{}, ofTensor(name, ErrPickle, "a tensor without a storage", "")
	case t.dtype.as == safetensors.Invalid || t.dtype.paired() && len(t.size) == 0:
		return placed{}, ofTensor(name, ErrDType, string(t.dtype.name)+fmt.Sprint(t.size), "another dtype; convert it in Python first")
	case t.neg && t.dtype.float == 0 || t.conj && !t.dtype.complex():
		return placed{}, ofTensor(name, ErrUnsupported, "a negated view of "+string(t.dtype.name), "")
	}
	p := placed{name: name, dtype: t.dtype.as}
	var err error
	if p.extent, err = c.find(t.storage); err != nil {
		return placed{}, withTensor(err, name)
	}
	if hi, size := bits.Mul64(uint64(t.storage.numel), uint64(t.storage.dtype.bytes)); hi != 0 || size != uint64(p.extent.size) {
		return placed{}, &FormatError{Record: p.extent.record, Tensor: name, Rule: ErrStorage,
			Found: byteCount(p.extent.size), Expected: fmt.Sprintf("%d elements of %s", t.storage.numel, byteCount(t.storage.dtype.bytes))}
	}
	if p.shape, err = t.shape(name); err != nil {
		return placed{}, err
	}
	if err := p.setView(t, c.swapped); err != nil {
		return placed{}, err
	}
	if p.view.size == 0 || !p.extent.deflated && p.view.plain() {
		p.inPlace, p.offset = true, p.extent.at+p.view.offset
	}
	if p.extent.deflated && p.extent.size > maxInflated && !p.view.plain() {
		return placed{}, &FormatError{Record: p.extent.record, Tensor: name, Rule: ErrLimit,
			Found: "a compressed storage of " + byteCount(p.extent.size) + " whose elements are not read in order", Expected: "at most " + byteCount(maxInflated)}
	}
	return p, nil
}

// withTensor adds the tensor's name to the error of a record.
func withTensor(err error, tensor string) error {
	if f, ok := err.(*FormatError); ok && f.Tensor == "" {
		f.Tensor = tensor
	}
	return err
}

// shape returns the shape of the tensor in safetensors elements.
func (t *tensor) shape(name string) ([]int, error) {
	shape := make([]int, len(t.size))
	for i, n := range t.size {
		if t.dtype.paired() && i == len(t.size)-1 {
			n *= 2
		}
		shape[i] = int(n)
		if int64(shape[i]) != n || n < 0 {
			return nil, ofTensor(name, ErrLimit, fmt.Sprint(t.size), "")
		}
	}
	entry := safetensors.Entry{Name: name, DType: t.dtype.as, Shape: shape}
	if _, err := entry.Size(); err != nil {
		return nil, ofTensor(name, ErrLimit, fmt.Sprint(t.dtype.as, shape), "")
	}
	return shape, nil
}

// setView checks that all elements are within the storage and sets p.view.
func (p *placed) setView(t *tensor, swapped bool) error {
	s, item := t.storage, t.dtype.bytes
	v := &p.view
	v.item, v.number = int(item), t.dtype.float
	if swapped && t.dtype.unit() > 1 {
		v.swap = t.dtype.unit()
	}
	switch {
	case t.neg && t.conj:
		v.flip = flipEven
	case t.neg:
		v.flip = flipAll
	case t.conj:
		v.flip = flipOdd
	}
	v.size = item
	for _, n := range t.size {
		v.size *= n // does not overflow, as checked by shape
	}
	if v.size == 0 {
		return nil
	}
	last := uint64(t.offset) // index of the last element
	for i, n := range t.size {
		hi, lo := bits.Mul64(uint64(n-1), uint64(t.stride[i]))
		var carry uint64
		if last, carry = bits.Add64(last, lo, 0); hi|carry != 0 {
			last = 1 << 63
			break
		}
	}
	have := s.count * s.dtype.bytes / item
	if last >= uint64(have) {
		return &FormatError{Record: p.extent.record, Tensor: p.name, Rule: ErrBounds,
			Found:    fmt.Sprintf("shape %v, stride %v, offset %d", t.size, t.stride, t.offset),
			Expected: "elements below " + strconv.FormatInt(have, 10)}
	}
	v.offset = s.from*s.dtype.bytes + t.offset*item
	v.span = (int64(last) - t.offset + 1) * item
	v.collapse(t.size, t.stride)
	return nil
}

// collapse drops dimensions of size 1 and merges contiguous ones.
func (v *view) collapse(size, stride []int64) {
	for i, n := range size {
		switch k := len(v.shape) - 1; {
		case n == 1:
		case k >= 0 && v.stride[k] == n*stride[i]:
			v.shape[k] *= n
			v.stride[k] = stride[i]
		default:
			v.shape, v.stride = append(v.shape, n), append(v.stride, stride[i])
		}
	}
	v.shape, v.stride = slices.Clip(v.shape), slices.Clip(v.stride)
}

// plain reports whether the tensor is a contiguous part of the storage in the
// same order.
func (v *view) plain() bool {
	contiguous := len(v.shape) == 0 || len(v.shape) == 1 && v.stride[0] == 1
	return contiguous && v.swap == 0 && v.flip == flipNone
}
