package model

import (
	"fmt"
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// This file reads stacks of experts in mxfp4, as gpt-oss stores them: NAME_blocks, U8 [..., out,
// in/32, 16], with two 4-bit floats in a byte, the lower bits first, and NAME_scales, U8 [..., out,
// in/32], the exponents of the blocks (Open Compute Project 2023, Microscaling Formats 1.0). They
// become bf16, which represents all their values.

// These are the suffixes of the two tensors.
const (
	mxfp4Blocks = "_blocks"
	mxfp4Scales = "_scales"
)

// mxfp4Block is the number of elements that share a scale.
const mxfp4Block = 32

// mxfp4Values are the 4-bit floats.
var mxfp4Values = [16]float64{0, 0.5, 1, 1.5, 2, 3, 4, 6, math.Copysign(0, -1), -0.5, -1, -1.5, -2, -3, -4, -6}

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
	return nn.Weight{DType: tensor.BF16, Shape: shape, Fill: func(put func(int, []byte) error) error {
		return blocks.WithBytes(func(codes []byte) error {
			return scales.WithBytes(func(exponents []byte) error { return decodeMXFP4(codes, exponents, put) })
		})
	}}, nil
}

// decodeMXFP4 passes the elements of blocks to put as bf16, some blocks at a time.
func decodeMXFP4(codes, exponents []byte, put func(offset int, data []byte) error) error {
	const bytes = 2 * mxfp4Block
	piece := make([]byte, 0, bytes*min(len(exponents), pieceElements/mxfp4Block))
	var values [16]uint16
	scale, known := byte(0), false
	for i, e := range exponents {
		if e != scale || !known {
			for v, x := range mxfp4Values {
				values[v] = uint16(math.Float32bits(float32(math.Ldexp(x, int(e)-127))) >> 16)
			}
			scale, known = e, true
		}
		for _, c := range codes[i*mxfp4Block/2:][:mxfp4Block/2] {
			low, high := values[c&15], values[c>>4]
			piece = append(piece, byte(low), byte(low>>8), byte(high), byte(high>>8))
		}
		if len(piece) == cap(piece) || i+1 == len(exponents) {
			if err := put((i+1)*bytes-len(piece), piece); err != nil {
				return err
			}
			piece = piece[:0]
		}
	}
	return nil
}
