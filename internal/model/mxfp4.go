package model

import (
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// This file reads stacks of experts in mxfp4, as gpt-oss stores them: NAME_blocks, U8 [..., out,
// in/32, 16], with two 4-bit floats in a byte, the lower bits first, and NAME_scales, U8 [..., out,
// in/32], the exponents of the blocks (Open Compute Project 2023, Microscaling Formats 1.0). Devices
// that read blocks of other programs get tensor.MXFP4, others bf16, which represents all values.

// These are the suffixes of the two tensors.
const (
	mxfp4Blocks = "_blocks"
	mxfp4Scales = "_scales"
)

// mxfp4Block is the number of elements that share a scale.
const mxfp4Block = 32

// storedMXFP4 returns the names of the two tensors of a weight, or nil if it is not stored so.
func (m *Model) storedMXFP4(name string) []string {
	names := []string{m.inFile(name + mxfp4Blocks), m.inFile(name + mxfp4Scales)}
	if !m.set.Has(names[0]) {
		return nil
	}
	return names
}

// mxfp4 returns a weight [..., out, in] that is stored in blocks.
func (m *Model) mxfp4(stored []string) (nn.Weight, error) {
	blocks, err := m.view(stored[0])
	if err != nil {
		return nn.Weight{}, err
	}
	scales, err := m.view(stored[1])
	if err != nil {
		return nn.Weight{}, fmt.Errorf("%w: %w", nn.ErrMissing, err)
	}
	n := len(blocks.Shape)
	if n < 3 || blocks.DType != safetensors.U8 || scales.DType != safetensors.U8 || blocks.Shape[n-1] != mxfp4Block/2 || !slices.Equal(blocks.Shape[:n-1], scales.Shape) {
		return nn.Weight{}, fmt.Errorf("%w: %q is %v %v and %q is %v %v, expected U8 [..., 16] and U8 with the same axes but the last",
			ErrQuantized, stored[0], blocks.DType, blocks.Shape, stored[1], scales.DType, scales.Shape)
	}
	shape := slices.Clone(blocks.Shape[:n-1])
	shape[n-2] *= mxfp4Block
	return nn.Weight{DType: tensor.MXFP4, Shape: shape, Fill: func(put func(int, []byte) error) error {
		return blocks.WithBytes(func(codes []byte) error {
			return scales.WithBytes(func(exponents []byte) error { return joinMXFP4(codes, exponents, put) })
		})
	}}, nil
}

// addMXFP4 counts the stacks of experts in mxfp4.
func (q *Quantization) addMXFP4(m *Model) {
	for _, name := range m.used {
		stored, _ := transposedOf(name)
		two := m.storedMXFP4(stored)
		if two == nil {
			continue
		}
		if w, err := m.mxfp4(two); err == nil {
			q.Stacks++
			q.StackBytes += int64(w.Size())
		}
	}
}

// joinMXFP4 passes blocks to put as those of tensor.MXFP4, some at a time: the exponent, then the
// codes, of which those of elements j and j+16 share a byte.
func joinMXFP4(codes, exponents []byte, put func(offset int, data []byte) error) error {
	const half = mxfp4Block / 2
	piece := make([]byte, 0, tensor.MXFP4.Bytes(pieceElements))
	for i, e := range exponents {
		c := (*[half]byte)(codes[i*half:])
		piece = append(piece, e)
		for j := range half {
			shift := j % 2 * 4
			piece = append(piece, c[j/2]>>shift&15|c[half/2+j/2]>>shift<<4)
		}
		if len(piece) == cap(piece) || i+1 == len(exponents) {
			if err := put((i+1)*(half+1)-len(piece), piece); err != nil {
				return err
			}
			piece = piece[:0]
		}
	}
	return nil
}

// inBF16 returns a weight in blocks as bf16, converted on use.
func inBF16(w nn.Weight) nn.Weight {
	n, size := w.DType.BlockElements(), w.DType.BlockBytes()
	return nn.Weight{DType: tensor.BF16, Shape: w.Shape, Fill: func(put func(int, []byte) error) error {
		return w.Fill(func(offset int, blocks []byte) error {
			values := make([]float32, len(blocks)/size*n)
			if err := quant.Dequantize(values, blocks, 0, w.DType); err != nil {
				return err
			}
			data := make([]byte, tensor.BF16.Bytes(len(values)))
			if err := tensor.FromFloat32(data, values, tensor.BF16); err != nil {
				return err
			}
			return put(tensor.BF16.Bytes(offset/size*n), data)
		})
	}}
}
