package quant

import (
	"encoding/binary"
	"math"

	"github.com/lorafuse/lorafuse/tensor"
)

// foreign converts one block of each type of other programs to float32. Products are
// rounded before they are added, as in ggml's portable code, so explicit conversions
// keep the compiler from fusing them.
var foreign = map[tensor.DType]func(dst []float32, block []byte){
	tensor.Q4_0: decodeQ4_0, tensor.Q4_1: decodeQ4_1, tensor.Q5_0: decodeQ5_0, tensor.Q5_1: decodeQ5_1, tensor.Q8_0: decodeQ8_0,
	tensor.Q2_K: decodeQ2K, tensor.Q3_K: decodeQ3K, tensor.Q4_K: decodeQ4K, tensor.Q5_K: decodeQ5K, tensor.Q6_K: decodeQ6K,
	tensor.MXFP4: decodeMXFP4, tensor.Z4: decodeZ4, tensor.Z8: decodeZ8,
}

// dequantizeForeign is Dequantize for the types of other programs.
func dequantizeForeign(dst []float32, src []byte, first int, d tensor.DType) {
	decode, n, size := foreign[d], d.BlockElements(), d.BlockBytes()
	src, first = src[first/n*size:], first%n
	if first > 0 || len(dst) < n {
		src = partly(&dst, src, first, n, size, decode)
	}
	for ; len(dst) >= n; dst, src = dst[n:], src[size:] {
		decode(dst[:n], src[:size])
	}
	if len(dst) > 0 {
		partly(&dst, src, 0, n, size, decode)
	}
}

// partly converts a part of one block, and returns what follows it.
func partly(dst *[]float32, src []byte, first, n, size int, decode func([]float32, []byte)) []byte {
	if len(*dst) == 0 {
		return src
	}
	var whole [superBlock]float32
	decode(whole[:n], src[:size])
	*dst = (*dst)[copy(*dst, whole[first:n]):]
	return src[size:]
}

// superBlock is the number of elements per block of the K types.
const superBlock = 256

func half(b []byte) float32 { return tensor.F16ToFloat32(binary.LittleEndian.Uint16(b)) }

// PutZ writes a block of Z4 or Z8, whichever dst fits: the bits of an f16 scale, the zero point,
// and the codes of 32 elements. An element is its scale times the difference of code and zero
// point, which f32 represents exactly.
func PutZ(dst []byte, scale uint16, zero byte, codes []byte) {
	binary.LittleEndian.PutUint16(dst, scale)
	dst[2] = zero
	c := (*[32]byte)(codes)
	if len(dst) == 3+len(c) {
		copy(dst[3:], c[:])
		return
	}
	for j := range 16 {
		dst[3+j] = c[j] | c[16+j]<<4
	}
}

func decodeZ4(dst []float32, b []byte) {
	d, zero := half(b), float32(b[2])
	v := from8
	for q := range v {
		v[q] = (v[q] + 8 - zero) * d
	}
	nibbles(dst, b[3:19], &v)
}

func decodeZ8(dst []float32, b []byte) {
	d, zero := half(b), int(b[2])
	for j, q := range b[3:35] {
		dst[j] = float32(int(q)-zero) * d
	}
}

// nibbles writes the values of 32 codes: those of the lower halves of 16 bytes, then those
// of the upper halves.
func nibbles(dst []float32, codes []byte, values *[16]float32) {
	d, c := (*[32]float32)(dst), (*[16]byte)(codes)
	for j, q := range c {
		d[j], d[j+16] = values[q&15], values[q>>4]
	}
}

// from8 has the codes of four bits with 8 in the middle.
var from8 = [16]float32{-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7}

func decodeQ4_0(dst []float32, b []byte) {
	d := half(b)
	v := from8
	for q := range v {
		v[q] *= d
	}
	nibbles(dst, b[2:18], &v)
}

func decodeQ4_1(dst []float32, b []byte) {
	d, m := half(b), half(b[2:])
	v := from8
	for q := range v {
		v[q] = float32((v[q]+8)*d) + m
	}
	nibbles(dst, b[4:20], &v)
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
	v := mxfp4
	for q := range v {
		v[q] *= d
	}
	nibbles(dst, b[1:17], &v)
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

// ScaleMin returns the 6-bit scale and minimum of part j of a block of Q4_K or Q5_K.
func ScaleMin(packed []byte, j int) (scale, minimum byte) {
	if j < 4 {
		return packed[j] & 63, packed[j+4] & 63
	}
	return packed[j+4]&15 | packed[j-4]>>6<<4, packed[j+4]>>4 | packed[j]>>6<<4
}

func decodeQ4K(dst []float32, b []byte) {
	d, m, codes := half(b), half(b[2:]), b[16:144]
	for j := 0; j < 8; j += 2 {
		low, high := partValues(b[4:16], j, d, m), partValues(b[4:16], j+1, d, m)
		to, from := (*[64]float32)(dst[j*32:]), (*[32]byte)(codes[j*16:])
		for l, q := range from {
			to[l], to[l+32] = low[q&15], high[q>>4]
		}
	}
}

// partValues returns the values of the codes of part j of a block of Q4_K.
func partValues(packed []byte, j int, d, m float32) (v [16]float32) {
	s, least := ScaleMin(packed, j)
	scale, minimum := d*float32(s), m*float32(least)
	for q := range v {
		v[q] = float32(scale*(from8[q]+8)) - minimum
	}
	return v
}

func decodeQ5K(dst []float32, b []byte) {
	d, m, high, codes := half(b), half(b[2:]), (*[32]byte)(b[16:48]), b[48:176]
	for j := range 8 {
		s, least := ScaleMin(b[4:16], j)
		scale, minimum := d*float32(s), m*float32(least)
		to, from := (*[32]float32)(dst[j*32:]), (*[32]byte)(codes[j/2*32:])
		for l, q := range from {
			q = q>>(j%2*4)&15 | high[l]>>j&1<<4
			to[l] = float32(scale*float32(q)) - minimum
		}
	}
}

func decodeQ6K(dst []float32, b []byte) {
	low, high, scales, d := b[:128], b[128:192], b[192:208], half(b[208:])
	for part := range 8 { // of 32 elements
		n, k := part/4, part%4
		l, h := (*[32]byte)(low[n*64+k%2*32:]), (*[32]byte)(high[n*32:])
		to := (*[32]float32)(dst[part*32:])
		first, second := d*float32(int8(scales[part*2])), d*float32(int8(scales[part*2+1]))
		for i := range 16 {
			to[i] = first * float32(int(l[i]>>(k/2*4)&15|h[i]>>(k*2)&3<<4)-32)
			to[i+16] = second * float32(int(l[i+16]>>(k/2*4)&15|h[i+16]>>(k*2)&3<<4)-32)
		}
	}
}
