package safetensors

import (
	"fmt"
	"io"
	"slices"
)

// Span is the range of indices of one dimension from From to To, exclusive.
type Span struct{ From, To int }

// Slice is a part of a tensor: some rows, some columns, or any box of its
// dimensions. It reads lazily, and no more bytes than necessary. It is safe for
// concurrent use.
type Slice struct {
	Name  string
	DType DType
	Shape []int // shape of the slice

	box *View // the bytes from the first to the last one of the slice
	// The bytes of the slice are runs in the box. The first run starts at offset
	// 0, the others at combinations of the steps of loops, of which the last one
	// varies fastest.
	run, size int64
	loops     []loop
}

// loop is a dimension along which the runs of a slice repeat.
type loop struct{ count, step int64 }

// Slice returns the part of the tensor whose indices are in the given spans, one per
// dimension from the first. Omitted dimensions are whole. So v.Slice(Span{2, 4}) selects
// rows, and v.Slice(Span{0, v.Shape[0]}, Span{2, 4}) selects columns.
//
// It fails with ErrRange for more spans than dimensions and for indices out of range, and
// with ErrPartialByte if elements smaller than a byte make part of a row begin or end within
// a byte.
func (v *View) Slice(spans ...Span) (*Slice, error) {
	if len(spans) > len(v.Shape) {
		return nil, fmt.Errorf("safetensors: %s: tensor %s: %d spans for shape %v: %w", v.file.path, quote(v.Name), len(spans), v.Shape, ErrRange)
	}
	elements := elementCount{n: 1}
	s := &Slice{Name: v.Name, DType: v.DType, Shape: slices.Clone(v.Shape), box: &View{Name: v.Name, DType: v.DType}}
	for i, d := range v.Shape {
		elements.times(uint64(d))
		if i >= len(spans) {
			continue
		}
		span := spans[i]
		if span.From < 0 || span.From > span.To || span.To > d {
			return nil, fmt.Errorf("safetensors: %s: tensor %s: indices %d to %d in dimension %d of shape %v: %w",
				v.file.path, quote(v.Name), span.From, span.To, i, v.Shape, ErrRange)
		}
		s.Shape[i] = span.To - span.From
	}
	if size, _, overflow := elements.bytes(v.DType); overflow || size != uint64(v.Len()) {
		return nil, v.shapeError()
	}
	first, whole := s.layOut(v.Shape, spans)
	if !whole {
		return nil, v.formatError(ErrPartialByte, fmt.Sprintf("%v of %v%v", spans, v.DType, v.Shape), "")
	}
	last := first + s.run
	for _, l := range s.loops {
		last += (l.count - 1) * l.step
	}
	v.place(s.box, first, last)
	return s, nil
}

// layOut computes the runs. It returns the offset of the first one, and whether
// all consist of whole bytes. No product overflows, because the product of the
// whole shape does not.
func (s *Slice) layOut(shape []int, spans []Span) (first int64, whole bool) {
	if slices.Contains(s.Shape, 0) {
		return 0, true // for any spans
	}
	// From the last dimension to the first, in bits: the inner dimensions are
	// contiguous until a span omits something.
	width := int64(s.DType.Bits())
	s.run = width
	contiguous := true
	for i := len(s.Shape) - 1; i >= 0; i-- {
		n, d := int64(s.Shape[i]), int64(shape[i])
		if i < len(spans) {
			first += int64(spans[i].From) * width
		}
		switch {
		case contiguous:
			s.run *= n
			contiguous = n == d
		case n == 1:
		case len(s.loops) > 0 && s.loops[0].step*s.loops[0].count == width:
			s.loops[0].count *= n
		default:
			s.loops = slices.Insert(s.loops, 0, loop{count: n, step: width})
		}
		width *= d
	}
	whole = first%8 == 0 && s.run%8 == 0
	s.run /= 8
	s.size = s.run
	for i := range s.loops {
		whole = whole && s.loops[i].step%8 == 0
		s.loops[i].step /= 8
		s.size *= s.loops[i].count
	}
	return first / 8, whole
}

// Len returns the size of the slice in bytes.
func (s *Slice) Len() int { return int(s.size) }

// ReadInto fills dst with the bytes of the slice, row-major and little-endian.
// It fails with ErrSize unless dst is as long as the slice, and reports read
// errors as View.WithBytes does.
func (s *Slice) ReadInto(dst []byte) error {
	if int64(len(dst)) != s.size {
		return s.box.formatError(ErrSize, byteCount(uint64(len(dst))), fmt.Sprintf("%d for %v%v", s.size, s.DType, s.Shape))
	}
	return s.gather(dst, 0)
}

// ReadAt implements io.ReaderAt; off is an offset within the slice. It reports
// read errors as View.WithBytes does.
func (s *Slice) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("safetensors: %s: tensor %s: read at %d: %w", s.box.file.path, quote(s.Name), off, ErrRange)
	}
	n = int(min(int64(len(p)), max(0, s.size-off)))
	if err := s.gather(p[:n], off); err != nil {
		return 0, err
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteTo implements io.WriterTo. It reports read errors as View.WithBytes does.
func (s *Slice) WriteTo(w io.Writer) (n int64, err error) { return s.View().WriteTo(w) }

// Entry returns an Entry of the slice for a writer, which reads the bytes when
// it writes them. It is named like the tensor.
func (s *Slice) Entry() Entry { return s.View().Entry() }

// View returns the slice as a tensor. If its bytes are contiguous, the view is
// in place if the tensor is. Otherwise the view gathers the bytes on demand.
func (s *Slice) View() *View {
	part := &View{Name: s.Name, DType: s.DType}
	part.Shape = append(part.dims[:0], s.Shape...)
	if len(s.loops) == 0 {
		s.box.place(part, 0, s.run)
		return part
	}
	part.file, part.begin = s.box.file, nowhere
	part.source = &source{r: s, length: s.size, chunk: gatherChunk}
	return part
}
