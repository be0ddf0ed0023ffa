package gguf

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/tensor"
)

// Quantize converts float32 elements, a whole number of blocks, to type t. Blocks equal
// the output of ggml's reference functions (quantize_row_*_ref).
func Quantize(dst []byte, x []float32, t Type) error {
	b := types[t]
	if b == nil || b.quantize == nil {
		return fmt.Errorf("gguf: %w: writing %v", ErrUnsupported, t)
	}
	n, size := t.BlockSize()
	if len(x)%n != 0 || len(dst) != len(x)/n*size {
		return fmt.Errorf("gguf: %d elements of %v in %d bytes: %w", len(x), t, len(dst), ErrFormat)
	}
	if d, ok := map[Type]tensor.DType{F16: tensor.F16, BF16: tensor.BF16, F32: tensor.F32}[t]; ok {
		return tensor.FromFloat32(dst, x, d)
	}
	for i := 0; i*n < len(x); i++ {
		b.quantize(dst[i*size:(i+1)*size], x[i*n:(i+1)*n])
	}
	return nil
}

func encodeF32(b []byte, x []float32) { binary.LittleEndian.PutUint32(b, math.Float32bits(x[0])) }
func encodeF16(b []byte, x []float32) { putHalf(b, x[0]) }
func encodeBF16(b []byte, x []float32) {
	binary.LittleEndian.PutUint16(b, tensor.Float32ToBF16(x[0]))
}

func putHalf(b []byte, x float32) { binary.LittleEndian.PutUint16(b, tensor.Float32ToF16(x)) }

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// inverse returns 1/x, or 0 for 0.
func inverse(x float32) float32 {
	if x == 0 {
		return 0
	}
	return 1 / x
}

// nearest rounds to the nearest integer, halves to even.
func nearest(x float32) int { return int(math.RoundToEven(float64(x))) }

// largest returns the first element with the largest absolute value.
func largest(x []float32) float32 {
	var m float32
	for _, v := range x {
		if abs(v) > abs(m) {
			m = v
		}
	}
	return m
}

func quantizeQ8_0(b []byte, x []float32) {
	d := abs(largest(x)) / 127
	id := inverse(d)
	putHalf(b, d)
	for i, v := range x {
		b[2+i] = byte(int8(math.Round(float64(v * id)))) // halves away from zero
	}
}

func quantizeQ4_0(b []byte, x []float32) {
	d := largest(x) / -8
	id := inverse(d)
	putHalf(b, d)
	code := func(v float32) byte { return byte(min(15, int8(float32(v*id)+8.5))) }
	for i := range 16 {
		b[2+i] = code(x[i]) | code(x[i+16])<<4
	}
}
