package single

import (
	"fmt"
	"io"

	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// place returns the location of a part: in the file, or in converted values.
func (p *part) place(f *weights.Set) (safetensors.ExternalTensor, error) {
	x := safetensors.ExternalTensor{Name: p.name, DType: p.dtype, Shape: p.shape}
	v, err := f.Lookup(p.key)
	if err != nil {
		return x, err
	}
	switch p.dtype {
	case safetensors.F32, safetensors.F16, safetensors.BF16, safetensors.F8E4M3, safetensors.F8E5M2:
	default:
		return x, fmt.Errorf("found weights of %v, expected F32, F16, BF16, F8_E4M3 or F8_E5M2", p.dtype)
	}
	r := &values{file: f, views: []*safetensors.View{v}}
	if p.rows != nil {
		r.views = nil
		for _, span := range p.rows {
			part, err := v.Rows(span.From, span.To)
			if err != nil {
				return x, err
			}
			r.views = append(r.views, part)
		}
	}
	if r.from, err = tensor.ParseDType(p.dtype.String()); err != nil {
		return x, err
	}
	if r.to = r.from; r.from == tensor.F8E5M2 {
		r.to, x.DType = tensor.BF16, safetensors.BF16
	}
	if p.scale != "" {
		if err := r.readScale(f, p, v.Shape); err != nil {
			return x, err
		}
	}
	if len(r.views) == 1 && r.to == r.from && r.scale == nil {
		if _, x.Offset, _ = r.views[0].Extent(); x.Offset >= 0 {
			return x, nil
		}
	}
	x.Reader = r
	return x, nil
}

// values reads rows of a tensor with a permutation, a dtype conversion or a scale applied. It
// owns the file.
type values struct {
	file     *weights.Set
	views    []*safetensors.View // rows, concatenated
	from, to tensor.DType
	scale    []float32 // nil, one for all, or one per row
	row      int       // elements per row
}

// readScale reads the scale factors of a tensor: one for all rows, or one per row.
func (r *values) readScale(f *weights.Set, p *part, shape []int) error {
	v, err := f.Lookup(p.scale)
	if err != nil {
		return err
	}
	d, err := tensor.ParseDType(v.DType.String())
	if err != nil {
		return fmt.Errorf("%s: %w", p.scale, err)
	}
	n := v.Len() / max(d.Size(), 1)
	if len(shape) == 0 || n != 1 && n != shape[0] || !(d == tensor.F32 || d == tensor.F16 || d == tensor.BF16) {
		return fmt.Errorf("its scale %q: found %v%v, expected a float, or one for each of the rows of %v", p.scale, v.DType, v.Shape, shape)
	}
	all := make([]float32, n)
	if err := v.WithBytes(func(data []byte) error { return tensor.ToFloat32(all, data, d) }); err != nil {
		return err
	}
	r.scale, r.row = all, 1
	if n == 1 {
		return nil
	}
	for _, d := range shape[1:] {
		r.row *= d
	}
	if p.rows != nil {
		r.scale = nil
		for _, span := range p.rows {
			r.scale = append(r.scale, all[span.From:span.To]...)
		}
	}
	return nil
}

// pieceElements is the number of elements per conversion.
const pieceElements = 1 << 14

// ReadAt implements io.ReaderAt.
func (r *values) ReadAt(p []byte, off int64) (n int, err error) {
	size := int64(r.to.Size())
	for n < len(p) {
		element := (off + int64(n)) / size
		skip := int(off + int64(n) - element*size)
		data, err := r.piece(element, min(pieceElements, (len(p)-n+skip+int(size)-1)/int(size)))
		if err != nil {
			return n, err
		}
		if len(data) == 0 {
			return n, io.EOF
		}
		n += copy(p[n:], data[skip:])
	}
	return n, nil
}

// piece converts up to count elements starting at element. It returns none after the last.
func (r *values) piece(element int64, count int) ([]byte, error) {
	at, size := element, int64(r.from.Size())
	for _, v := range r.views {
		here := int64(v.Len()) / size
		if at >= here {
			at -= here
			continue
		}
		count = int(min(int64(count), here-at))
		data := make([]byte, count*int(size))
		if n, err := v.ReadAt(data, at*size); n < len(data) {
			return nil, err
		}
		return r.convert(data, element, count)
	}
	return nil, nil
}

// convert converts count elements of data, which start at element.
func (r *values) convert(data []byte, element int64, count int) ([]byte, error) {
	if r.from == r.to && r.scale == nil {
		return data, nil
	}
	floats := make([]float32, count)
	if err := tensor.ToFloat32(floats, data, r.from); err != nil {
		return nil, err
	}
	switch len(r.scale) {
	case 0:
	case 1:
		for i := range floats {
			floats[i] *= r.scale[0]
		}
	default:
		for i := range floats {
			floats[i] *= r.scale[(int(element)+i)/r.row]
		}
	}
	made := make([]byte, r.to.Bytes(count))
	return made, tensor.FromFloat32(made, floats, r.to)
}

// Close implements io.Closer.
func (r *values) Close() error { return r.file.Close() }
