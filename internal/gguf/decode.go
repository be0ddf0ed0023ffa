package gguf

import (
	"encoding/binary"
	"math"

	"github.com/lorafuse/lorafuse/tensor"
)

// The functions of this file convert one block to float32. Products are rounded
// before they are added, as in ggml's portable code, so explicit conversions keep
// the compiler from fusing them.

func half(b []byte) float32 { return tensor.F16ToFloat32(binary.LittleEndian.Uint16(b)) }

func decodeF32(dst []float32, b []byte) {
	dst[0] = math.Float32frombits(binary.LittleEndian.Uint32(b))
}
func decodeF16(dst []float32, b []byte) { dst[0] = half(b) }
func decodeBF16(dst []float32, b []byte) {
	dst[0] = tensor.BF16ToFloat32(binary.LittleEndian.Uint16(b))
}

func decodeQ4_0(dst []float32, b []byte) {
	d := half(b)
	for j, q := range b[2:18] {
		dst[j] = float32(int(q&15)-8) * d
		dst[j+16] = float32(int(q>>4)-8) * d
	}
}

func decodeQ4_1(dst []float32, b []byte) {
	d, m := half(b), half(b[2:])
	for j, q := range b[4:20] {
		dst[j] = float32(float32(q&15)*d) + m
		dst[j+16] = float32(float32(q>>4)*d) + m
	}
}

// fifth returns the fifth bits of elements j and j+16, in place.
func fifth(high uint32, j int) (lo, hi byte) {
	return byte(high>>j<<4) & 16, byte(high>>(j+12)) & 16
}

func decodeQ5_0(dst []float32, b []byte) {
	d, high := half(b), binary.LittleEndian.Uint32(b[2:])
	for j, q := range b[6:22] {
		lo, hi := fifth(high, j)
		dst[j] = float32(int(q&15|lo)-16) * d
		dst[j+16] = float32(int(q>>4|hi)-16) * d
	}
}

func decodeQ5_1(dst []float32, b []byte) {
	d, m, high := half(b), half(b[2:]), binary.LittleEndian.Uint32(b[4:])
	for j, q := range b[8:24] {
		lo, hi := fifth(high, j)
		dst[j] = float32(float32(q&15|lo)*d) + m
		dst[j+16] = float32(float32(q>>4|hi)*d) + m
	}
}

func decodeQ8_0(dst []float32, b []byte) {
	d := half(b)
	for j, q := range b[2:34] {
		dst[j] = float32(int8(q)) * d
	}
}

// mxfp4 has twice the values of the codes of E2M1; the scale is halved in turn.
var mxfp4 = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

func decodeMXFP4(dst []float32, b []byte) {
	bits := uint32(0x00200000) << b[0] // subnormal halves of 2⁻¹²⁷ and 2⁻¹²⁶
	if b[0] >= 2 {
		bits = uint32(b[0]-1) << 23
	}
	d := math.Float32frombits(bits)
	for j, q := range b[1:17] {
		dst[j] = mxfp4[q&15] * d
		dst[j+16] = mxfp4[q>>4] * d
	}
}

func decodeQ2K(dst []float32, b []byte) {
	scales, codes, d, m := b[:16], b[16:80], half(b[80:]), half(b[82:])
	for i := range dst[:superBlock] {
		// Bits 2k and 2k+1 of 32 bytes hold 32 elements in a row.
		s := scales[i/16]
		q := codes[i/128*32+i%32] >> (i % 128 / 32 * 2) & 3
		dst[i] = float32(float32(d*float32(s&15))*float32(q)) - float32(m*float32(s>>4))
	}
}

func decodeQ3K(dst []float32, b []byte) {
	high, codes, packed, d := b[:32], b[32:96], b[96:108], half(b[108:])
	var scales [16]int
	for i := range scales {
		low := packed[i%8] >> (i / 8 * 4) & 15
		scales[i] = int(low|packed[8+i%4]>>(i/4*2)&3<<4) - 32
	}
	for i := range dst[:superBlock] {
		q := int(codes[i/128*32+i%32] >> (i % 128 / 32 * 2) & 3)
		if high[i%32]>>(i/32)&1 == 0 {
			q -= 4
		}
		dst[i] = float32(d*float32(scales[i/16])) * float32(q)
	}
}

// scaleMin returns the 6-bit scale and minimum of part j of a block of Q4_K or Q5_K.
func scaleMin(packed []byte, j int) (scale, minimum byte) {
	if j < 4 {
		return packed[j] & 63, packed[j+4] & 63
	}
	return packed[j+4]&15 | packed[j-4]>>6<<4, packed[j+4]>>4 | packed[j]>>6<<4
}

func decodeQ4K(dst []float32, b []byte) { decodeParts(dst, b[:16], nil, b[16:144]) }
func decodeQ5K(dst []float32, b []byte) { decodeParts(dst, b[:16], b[16:48], b[48:176]) }

// decodeParts converts a block with eight parts of 32 elements, each with a scale and
// a minimum. high has the fifth bits, and is nil for Q4_K.
func decodeParts(dst []float32, head, high, codes []byte) {
	d, m := half(head), half(head[2:])
	for j := range 8 {
		s, least := scaleMin(head[4:], j)
		scale, minimum := d*float32(s), m*float32(least)
		for l := range 32 {
			q := codes[j/2*32+l] >> (j % 2 * 4) & 15
			if high != nil {
				q |= high[l] >> j & 1 << 4
			}
			dst[j*32+l] = float32(scale*float32(q)) - minimum
		}
	}
}

func decodeQ6K(dst []float32, b []byte) {
	low, high, scales, d := b[:128], b[128:192], b[192:208], half(b[208:])
	for i := range dst[:superBlock] {
		n, j := i/128, i%128
		q := low[n*64+j%64] >> (j / 64 * 4) & 15
		q |= high[n*32+j%32] >> (j / 32 * 2) & 3 << 4
		dst[i] = float32(d*float32(int8(scales[i/16]))) * float32(int(q)-32)
	}
}

// Float32s converts blocks to float32. The length of dst is a multiple of the block
// size of t, and src has as many blocks.
func (t Type) float32s(dst []float32, src []byte) {
	b := types[t]
	switch t { // without a call per element
	case F16, BF16, F32:
		d := map[Type]tensor.DType{F16: tensor.F16, BF16: tensor.BF16, F32: tensor.F32}[t]
		_ = tensor.ToFloat32(dst, src, d) // the lengths match
		return
	}
	for i := 0; i*b.n < len(dst); i++ {
		b.decode(dst[i*b.n:(i+1)*b.n], src[i*b.size:(i+1)*b.size])
	}
}
