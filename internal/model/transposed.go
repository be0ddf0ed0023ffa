package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// transposedOf returns the name of the weight that a transposed one is made of.
func transposedOf(name string) (stored string, ok bool) {
	return strings.CutSuffix(name, nn.TransposedSuffix)
}

// transposed returns a stored matrix, or a stack of them, with the last two axes exchanged. It is
// made when its bytes are requested. bitsandbytes stores such weights transposed already.
func (m *Model) transposed(name string) (nn.Weight, error) {
	if two := m.storedMXFP4(name); two != nil {
		w, err := m.mxfp4(two)
		return inBF16(w), err
	}
	stored := m.inFile(name)
	if p := m.converted[stored+nn.TransposedSuffix]; p != nil {
		return nn.Weight{DType: p.dtype, Shape: p.shape, Fill: p.fill}, nil
	}
	if m.converted[stored] != nil && m.stored {
		return m.Weight(name)
	}
	w, err := m.Weight(name)
	if err != nil {
		return w, err
	}
	if len(w.Shape) < 2 || w.DType == tensor.F8E4M3 || w.DType.Quantized() || w.Fill != nil {
		return w, fmt.Errorf("%w: tensor %q is %v %v, expected a matrix of F32, F16 or BF16, since it is stored transposed", ErrUnsupported, name, w.DType, w.Shape)
	}
	v, err := m.view(stored)
	if err != nil {
		return w, err
	}
	shape := slices.Clone(v.Shape)
	n := len(shape)
	shape[n-1], shape[n-2] = shape[n-2], shape[n-1]
	return nn.Weight{DType: w.DType, Shape: shape, Fill: func(put func(int, []byte) error) error {
		return transpose(v, w.DType.Size(), put)
	}}, nil
}

// transpose passes the matrices of a view, with elements of size bytes, to put transposed, some
// rows at a time.
func transpose(v *safetensors.View, size int, put func(offset int, data []byte) error) error {
	n := len(v.Shape)
	rows, columns := v.Shape[n-2], v.Shape[n-1]
	return v.WithBytes(func(data []byte) error {
		if rows*columns == 0 {
			return nil
		}
		once := min(columns, 1+pieceElements/rows)
		piece := make([]byte, once*rows*size)
		for matrix := 0; matrix < len(data); matrix += rows * columns * size {
			for first := 0; first < columns; first += once {
				k := min(once, columns-first)
				for i := range rows {
					from := data[matrix+(i*columns+first)*size:]
					for j := range k {
						copy(piece[(j*rows+i)*size:][:size], from[j*size:][:size])
					}
				}
				if err := put(matrix+first*rows*size, piece[:k*rows*size]); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// quantizeTransposed makes uploads quantize a weight that is stored transposed.
func (m *Model) quantizeTransposed(name string, to tensor.DType, report *progressOf) error {
	w, err := m.transposed(name)
	if err != nil {
		return err
	}
	if to == tensor.F8E4M3 {
		return fmt.Errorf("model: %s: %w: quantize: %q is stored transposed, which is not converted to 8-bit floats; use int8 or nf4", m.Dir, ErrUnsupported, name)
	}
	stored := m.inFile(name)
	p := &converted{dtype: to, shape: w.Shape, from: []string{stored}}
	p.fill = func(put func(int, []byte) error) error {
		values, err := w.Float32s()
		if err != nil {
			return err
		}
		blocks := make([]byte, to.Bytes(len(values)))
		if err := quant.Quantize(blocks, values, to); err != nil {
			return err
		}
		return report.watch(put)(0, blocks)
	}
	report.total += int64(p.size())
	m.converted[stored+nn.TransposedSuffix] = p
	return nil
}
