package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// Limits for hostile files. Work and memory are bounded by the size of the file
// because every entry takes bytes of it.
const (
	maxAxes      = 4 // of ggml
	maxAlignment = 1 << 20
)

// parser reads the header from the bytes of a file. After an error all reads return
// zero values.
type parser struct {
	data []byte
	at   int
	err  error
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

// next returns n bytes.
func (p *parser) next(n uint64) []byte {
	if p.err != nil {
		return nil
	}
	if n > uint64(len(p.data)-p.at) {
		p.fail("%w: the header continues after byte %d, where the file ends", ErrTruncated, len(p.data))
		return nil
	}
	b := p.data[p.at : p.at+int(n)]
	p.at += int(n)
	return b
}

func (p *parser) u32() uint32 {
	if b := p.next(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (p *parser) u64() uint64 {
	if b := p.next(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (p *parser) text() string { return string(p.next(p.u64())) }

// count reads a number of entries of at least size bytes each.
func (p *parser) count(what string, size int) int {
	n := p.u64()
	if p.err == nil && n > uint64(len(p.data)-p.at)/uint64(size) {
		p.fail("%w: %d %s do not fit into the %d bytes that follow", ErrTruncated, n, what, len(p.data)-p.at)
	}
	if p.err != nil {
		return 0
	}
	return int(n)
}

// parse reads the header of the file.
func (f *File) parse(data []byte) error {
	p := &parser{data: data}
	switch head := string(p.next(4)); {
	case p.err != nil:
		return p.err
	case head != magic:
		return fmt.Errorf("%w: it begins with %q, expected %q", ErrFormat, head, magic)
	}
	switch v := p.u32(); {
	case p.err != nil:
	case v == 2 || v == version: // version 3 only adds files of the other byte order
	case bits.ReverseBytes32(v) <= version:
		return fmt.Errorf("%w: it is big-endian", ErrUnsupported)
	default:
		return fmt.Errorf("%w: version %d; supported: 2, %d", ErrUnsupported, v, version)
	}
	tensors := p.count("tensors", 8+4+8+4+8)
	keys := p.count("keys", 8+4+1)
	if p.err != nil {
		return p.err
	}
	f.byKey = make(map[string]int, keys)
	for range keys {
		kv := p.keyValue()
		if p.err != nil {
			return p.err
		}
		if _, twice := f.byKey[kv.Key]; twice {
			return fmt.Errorf("%w: duplicate key %q", ErrFormat, kv.Key)
		}
		f.byKey[kv.Key] = len(f.Keys)
		f.Keys = append(f.Keys, kv)
	}
	align := int64(defaultAlignment)
	if f.Has(alignmentKey) {
		n, err := f.Int(alignmentKey)
		if err != nil || n < 1 || n > maxAlignment || n&(n-1) != 0 {
			return fmt.Errorf("%w: %s is not a power of two up to %d", ErrFormat, alignmentKey, maxAlignment)
		}
		align = int64(n)
	}
	f.byName = make(map[string]int, tensors)
	for range tensors {
		t := p.tensor(align)
		if p.err != nil {
			return p.err
		}
		if _, twice := f.byName[t.Name]; twice {
			return fmt.Errorf("%w: duplicate tensor %q", ErrFormat, t.Name)
		}
		f.byName[t.Name] = len(f.Tensors)
		f.Tensors = append(f.Tensors, t)
	}
	return f.place((int64(p.at)+align-1)/align*align, int64(len(data)))
}

// place makes the offsets relative to the beginning of the file, and checks that
// tensors are inside the file and do not overlap.
func (f *File) place(start, end int64) error {
	order := make([]*Tensor, len(f.Tensors))
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if t.Offset > math.MaxInt64-start-int64(t.Size()) || start+t.Offset+int64(t.Size()) > end {
			return fmt.Errorf("%w: tensor %q takes bytes %d to %d, the file ends at %d", ErrTruncated, t.Name, start+t.Offset, uint64(start+t.Offset)+uint64(t.Size()), end)
		}
		t.Offset += start
		order[i] = t
	}
	slices.SortFunc(order, func(a, b *Tensor) int { return int(min(1, max(-1, a.Offset-b.Offset))) })
	for i := 1; i < len(order); i++ {
		if a, b := order[i-1], order[i]; a.Offset+int64(a.Size()) > b.Offset {
			return fmt.Errorf("%w: tensors %q and %q overlap", ErrFormat, a.Name, b.Name)
		}
	}
	return nil
}

// tensor reads an entry.
func (p *parser) tensor(align int64) Tensor {
	t := Tensor{Name: p.text()}
	axes := p.u32()
	if p.err == nil && axes > maxAxes {
		p.fail("%w: tensor %q has %d axes, expected at most %d", ErrFormat, t.Name, axes, maxAxes)
	}
	if p.err != nil {
		return t
	}
	elements := uint64(1)
	t.Shape = make([]int, axes)
	for i := range t.Shape {
		n := p.u64()
		high, product := bits.Mul64(elements, n)
		if high != 0 || n > math.MaxInt32*8 || product > math.MaxInt64/8 {
			p.fail("%w: tensor %q is too large", ErrFormat, t.Name)
			return t
		}
		elements = product
		t.Shape[len(t.Shape)-1-i] = int(n)
	}
	t.Type = Type(p.u32())
	offset := p.u64()
	if p.err != nil {
		return t
	}
	n, _ := t.Type.BlockSize()
	row := 1
	if axes > 0 {
		row = t.Shape[axes-1]
	}
	switch {
	case n == 0:
		p.fail("%w: tensor %q has type %v; read: %s", ErrUnsupported, t.Name, t.Type, strings.Join(Readable(), ", "))
	case row%n != 0:
		p.fail("%w: tensor %q has rows of %d elements, expected a multiple of %d for %v", ErrFormat, t.Name, row, n, t.Type)
	case offset > math.MaxInt64/2 || int64(offset)%align != 0:
		p.fail("%w: tensor %q is at offset %d, expected a multiple of %d", ErrFormat, t.Name, offset, align)
	}
	t.Offset = int64(offset)
	return t
}
