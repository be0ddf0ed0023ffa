package gemm

import (
	"unsafe"

	"github.com/lorafuse/lorafuse/tensor"
)

// portableDots sums in four strands, since a float addition takes four cycles, and in blocks, which reduces rounding
// errors.
func portableDots(rows, k int, x unsafe.Pointer, ldx int, w unsafe.Pointer, elem Elem, ldw, n int, out unsafe.Pointer, ldo int) {
	const stretch = 512
	for j := range n {
		for i := range rows {
			var sum float32
			for t := 0; t < k; t += stretch {
				xs := unsafe.Slice((*float32)(at(x, 4*(i*ldx+t))), min(stretch, k-t))
				ws := at(w, j*ldw+t*elem.Size())
				switch elem {
				case F32:
					sum += dotF32(xs, unsafe.Slice((*float32)(ws), len(xs)))
				case F16:
					sum += dotF16(xs, unsafe.Slice((*uint16)(ws), len(xs)))
				case BF16:
					sum += dotBF16(xs, unsafe.Slice((*uint16)(ws), len(xs)))
				}
			}
			*(*float32)(at(out, 4*(i*ldo+j))) = sum
		}
	}
}

func dotF32(x, w []float32) float32 {
	var s0, s1, s2, s3 float32
	for len(x) >= 4 && len(w) >= 4 {
		s0 += x[0] * w[0]
		s1 += x[1] * w[1]
		s2 += x[2] * w[2]
		s3 += x[3] * w[3]
		x, w = x[4:], w[4:]
	}
	for i, v := range x {
		s0 += v * w[i]
	}
	return (s0 + s1) + (s2 + s3)
}

func dotBF16(x []float32, w []uint16) float32 {
	var s0, s1, s2, s3 float32
	for len(x) >= 4 && len(w) >= 4 {
		s0 += x[0] * tensor.BF16ToFloat32(w[0])
		s1 += x[1] * tensor.BF16ToFloat32(w[1])
		s2 += x[2] * tensor.BF16ToFloat32(w[2])
		s3 += x[3] * tensor.BF16ToFloat32(w[3])
		x, w = x[4:], w[4:]
	}
	for i, v := range x {
		s0 += v * tensor.BF16ToFloat32(w[i])
	}
	return (s0 + s1) + (s2 + s3)
}

func dotF16(x []float32, w []uint16) float32 {
	var s0, s1, s2, s3 float32
	for len(x) >= 4 && len(w) >= 4 {
		s0 += x[0] * tensor.F16ToFloat32(w[0])
		s1 += x[1] * tensor.F16ToFloat32(w[1])
		s2 += x[2] * tensor.F16ToFloat32(w[2])
		s3 += x[3] * tensor.F16ToFloat32(w[3])
		x, w = x[4:], w[4:]
	}
	for i, v := range x {
		s0 += v * tensor.F16ToFloat32(w[i])
	}
	return (s0 + s1) + (s2 + s3)
}

// portableDirect walks over the columns in strips whose sums stay in the first-level cache.
func portableDirect(rows, k int, a unsafe.Pointer, arow, acol int, b unsafe.Pointer, elem Elem, ldb int, c unsafe.Pointer, ldc, cols int, alpha float32) {
	const strip = 64
	var sums, wide [strip]float32
	for j := 0; j < cols; j += strip {
		n := min(strip, cols-j)
		for i := range rows {
			clear(sums[:])
			for t := range k {
				row := at(b, t*ldb+j*elem.Size())
				bs := wide[:n]
				switch elem {
				case F32:
					bs = unsafe.Slice((*float32)(row), n)
				case F16:
					for q, h := range unsafe.Slice((*uint16)(row), n) {
						bs[q] = tensor.F16ToFloat32(h)
					}
				case BF16:
					for q, h := range unsafe.Slice((*uint16)(row), n) {
						bs[q] = tensor.BF16ToFloat32(h)
					}
				}
				v, s := *(*float32)(at(a, i*arow+t*acol)), sums[:len(bs)]
				for q, u := range bs {
					s[q] += v * u
				}
			}
			for q, u := range unsafe.Slice((*float32)(at(c, 4*(i*ldc+j))), n) {
				*(*float32)(at(c, 4*(i*ldc+j+q))) = u + alpha*sums[q]
			}
		}
	}
}
