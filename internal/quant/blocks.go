package quant

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/tensor"
)

const block = tensor.QuantBlock

// Quantize writes src as blocks of type d, starting with the first element. If
// src ends within a block, the rest of that block is undefined.
//
//   - Q8: the scale is the largest magnitude divided by 127, a code the nearest
//     multiple of it.
//   - NF4, FP4: the scale is the largest magnitude, and a code the index of the
//     code book's number nearest to the element divided by the scale. Rounding
//     is that of bitsandbytes, which multiplies by the reciprocal except in a
//     partial block.
//
// Errors: ErrDType; ErrLength if dst does not have tensor.DType.Bytes of the
// elements; and ErrNotFinite, with the index of an element that no block can
// represent.
func Quantize(dst []byte, src []float32, d tensor.DType) error {
	if err := checkLength(len(src), len(dst), d); err != nil {
		return err
	}
	if d.Foreign() {
		return fmt.Errorf("quant: %v is not written: %w", d, ErrDType)
	}
	size := d.BlockBytes()
	for i := 0; i*block < len(src); i++ {
		from := src[i*block : min(len(src), i*block+block)]
		most, ok := largest(from)
		if !ok {
			return notFinite(from, i*block)
		}
		to := dst[i*size : i*size+size]
		if d == tensor.Q8 {
			encode8(to, from, most)
		} else {
			encode4(to, from, most, nearests[d])
		}
	}
	return nil
}

// largest returns the largest magnitude, and whether all of x is finite.
func largest(x []float32) (float32, bool) {
	// Magnitudes are ordered like their bits; the bits of NaN and infinity are
	// the largest.
	most := uint32(0)
	for _, v := range x {
		most = max(most, math.Float32bits(v)&^(1<<31))
	}
	return math.Float32frombits(most), most < 0x7f800000
}

func notFinite(x []float32, first int) error {
	for i, v := range x {
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("quant: element %d is %v: %w", first+i, v, ErrNotFinite)
		}
	}
	return ErrNotFinite
}

// encode8 rounds to nearest, ties to even, by adding a number whose last bit
// has the value one: the lowest byte of the sum is the code.
func encode8(dst []byte, src []float32, most float32) {
	const magic = 3 << 51
	putScale(dst[block:], most/127)
	if most == 0 {
		clear(dst[:block])
		return
	}
	times := 127 / float64(most)
	for i, v := range src {
		dst[i] = byte(math.Float64bits(float64(float64(v)*times) + magic))
	}
	clear(dst[len(src):block])
}

func encode4(dst []byte, src []float32, most float32, n *nearest) {
	const half, least = block / 2, 1e-38
	putScale(dst[half:], most)
	var codes [block]byte
	divisor := max(most, least)
	if reciprocal := 1 / divisor; len(src) == block {
		for i, v := range src {
			codes[i&(block-1)] = n.code(v * reciprocal)
		}
	} else {
		for i, v := range src {
			codes[i] = n.code(v / divisor)
		}
	}
	for j := range half {
		dst[j] = codes[j] | codes[half+j]<<4
	}
}

func putScale(dst []byte, scale float32) {
	binary.LittleEndian.PutUint32(dst, math.Float32bits(scale))
}

func scaleOf(src []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(src)) }

// Dequantize writes len(dst) elements, from element first, of the blocks src of
// type d: code times scale, rounded once, and as ggml computes it for types of GGUF files. Errors: ErrDType, and ErrLength if
// src does not hold those elements.
func Dequantize(dst []float32, src []byte, first int, d tensor.DType) error {
	if !d.Quantized() {
		return fmt.Errorf("quant: %v: %w", d, ErrDType)
	}
	if first < 0 || d.Bytes(first+len(dst)) > len(src) {
		return fmt.Errorf("quant: elements %d to %d of %d bytes of %v: %w", first, first+len(dst), len(src), d, ErrLength)
	}
	if d.Foreign() {
		dequantizeForeign(dst, src, first, d)
		return nil
	}
	size, book := d.BlockBytes(), Code(d)
	for len(dst) > 0 {
		b, from := src[first/block*size:][:size], first%block
		n := min(len(dst), block-from)
		if d == tensor.Q8 {
			decode8(dst[:n], b, from)
		} else {
			decode4(dst[:n], b, from, &book)
		}
		dst, first = dst[n:], first+n
	}
	return nil
}

func decode8(dst []float32, b []byte, from int) {
	scale := scaleOf(b[block:])
	for i, c := range b[from:][:len(dst)] {
		dst[i] = float32(int8(c)) * scale
	}
}

func decode4(dst []float32, b []byte, from int, book *[16]float32) {
	const half = block / 2
	scale := scaleOf(b[half:])
	for i := range dst {
		j := from + i
		dst[i] = book[b[j%half]>>(j/half*4)&15] * scale
	}
}
