package gemm

import (
	"unsafe"

	"github.com/lorafuse/lorafuse/internal/quant"
)

// portableUnblock widens blocks in plain Go.
func portableUnblock(dst, src unsafe.Pointer, elem Elem, blocks int) {
	bytes := unsafe.Slice((*byte)(src), blocks*elem.blockBytes())
	// The length fits, which is all that can be wrong.
	_ = quant.Dequantize(unsafe.Slice((*float32)(dst), blocks*quantBlock), bytes, 0, elem.dtype())
}

// portableDotBlocks multiplies with a block at a time, and the sum over it with
// its scale. Several rows share the codes as floats; one row has no use for them.
func portableDotBlocks(rows, blocks int, x unsafe.Pointer, ldx int, w unsafe.Pointer, elem Elem, ldw, n int, out unsafe.Pointer, ldo int) {
	var wide [quantBlock]float32
	size, book := elem.blockBytes(), elem.code()
	for j := range n {
		for i := range rows {
			*(*float32)(at(out, 4*(i*ldo+j))) = 0
		}
		for b := range blocks {
			src := at(w, j*ldw+b*size)
			scale := *(*float32)(at(src, size-4))
			if rows > 1 {
				widenCodes(&wide, src, elem, book)
			}
			for i := range rows {
				xs := (*[quantBlock]float32)(at(x, 4*(i*ldx+b*quantBlock)))
				var sum float32
				switch {
				case rows > 1:
					sum = dotBlock(xs, &wide)
				case elem == Q8:
					sum = dotBytes(xs, (*[quantBlock]int8)(src))
				default:
					sum = dotNibbles(xs, (*[quantBlock / 2]byte)(src), book)
				}
				*(*float32)(at(out, 4*(i*ldo+j))) += scale * sum
			}
		}
	}
}

// widenCodes writes the codes of one block as floats.
func widenCodes(dst *[quantBlock]float32, src unsafe.Pointer, elem Elem, book *[16]float32) {
	if elem == Q8 {
		for i, c := range (*[quantBlock]int8)(src) {
			dst[i] = float32(c)
		}
		return
	}
	const half = quantBlock / 2
	for i, c := range (*[half]byte)(src) {
		dst[i], dst[half+i] = book[c&15], book[c>>4]
	}
}

// A row's sum must not depend on how many rows there are: these add in one
// order, in four strands: the even and the odd elements of either half.

func dotBlock(x, w *[quantBlock]float32) float32 {
	const half = quantBlock / 2
	var s0, s1, s2, s3 float32
	for i := 0; i < half; i += 2 {
		s0 += x[i] * w[i]
		s1 += x[i+1] * w[i+1]
		s2 += x[half+i] * w[half+i]
		s3 += x[half+i+1] * w[half+i+1]
	}
	return (s0 + s1) + (s2 + s3)
}

func dotBytes(x *[quantBlock]float32, codes *[quantBlock]int8) float32 {
	const half = quantBlock / 2
	var s0, s1, s2, s3 float32
	for i := 0; i < half; i += 2 {
		s0 += x[i] * float32(codes[i])
		s1 += x[i+1] * float32(codes[i+1])
		s2 += x[half+i] * float32(codes[half+i])
		s3 += x[half+i+1] * float32(codes[half+i+1])
	}
	return (s0 + s1) + (s2 + s3)
}

func dotNibbles(x *[quantBlock]float32, codes *[quantBlock / 2]byte, book *[16]float32) float32 {
	const half = quantBlock / 2
	var s0, s1, s2, s3 float32
	for i := 0; i < half; i += 2 {
		c, d := codes[i], codes[i+1]
		s0 += x[i] * book[c&15]
		s1 += x[i+1] * book[d&15]
		s2 += x[half+i] * book[c>>4]
		s3 += x[half+i+1] * book[d>>4]
	}
	return (s0 + s1) + (s2 + s3)
}
