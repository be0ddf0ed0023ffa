package dialects

import (
	"slices"

	"github.com/lorafuse/lorafuse/tensor"
)

// cut splits the adapter of a fused layer into adapters of its modules. Modules that
// the adapter does not change get none, unless it changes no module at all.
func cut(l layer, whole piece) []piece {
	if l.swapped {
		whole.b = swap(whole.b)
	}
	n := len(l.modules)
	if n == 1 {
		whole.module = l.modules[0]
		return []piece{whole}
	}
	diagonal, nothing := isDiagonal(l, whole.b), isZero(whole.b)
	row := 0
	var out []piece
	for i, m := range l.modules {
		p := whole
		p.module = m
		p.b = rows(whole.b, row, row+m.Out)
		row += m.Out
		if !nothing && isZero(p.b) {
			continue // the file adapts the others
		}
		if diagonal { // rank and alpha shrink alike, which preserves the scale
			r := whole.rank() / n
			p.a = rows(whole.a, i*r, i*r+r)
			p.b = columns(p.b, i*r, i*r+r)
			p.alpha /= float64(n)
		}
		out = append(out, p)
	}
	return out
}

// isDiagonal reports whether B is block-diagonal: each module has the same number of
// columns of its own, and zeros in the columns of the others.
func isDiagonal(l layer, b tensor.Tensor) bool {
	n, rank := len(l.modules), b.Shape[1]
	if rank%n != 0 {
		return false
	}
	row := 0
	for i, m := range l.modules {
		for j := range n {
			if i == j {
				continue
			}
			block := columns(rows(b, row, row+m.Out), j*rank/n, (j+1)*rank/n)
			if !isZero(block) {
				return false
			}
		}
		row += m.Out
	}
	return true
}

// isZero reports whether all elements are zero, of either sign.
func isZero(t tensor.Tensor) bool {
	v, err := t.Float32s()
	return err == nil && !slices.ContainsFunc(v, func(x float32) bool { return x != 0 })
}

// rows returns rows from..to of a matrix, in place.
func rows(t tensor.Tensor, from, to int) tensor.Tensor {
	n := t.DType.Bytes(t.Shape[1])
	return tensor.Tensor{DType: t.DType, Shape: []int{to - from, t.Shape[1]}, Data: t.Data[from*n : to*n]}
}

// columns returns a copy of columns from..to of a matrix.
func columns(t tensor.Tensor, from, to int) tensor.Tensor {
	n, size := t.DType.Bytes(t.Shape[1]), t.DType.Bytes(1)
	data := make([]byte, 0, t.Shape[0]*(to-from)*size)
	for i := range t.Shape[0] {
		data = append(data, t.Data[i*n+from*size:i*n+to*size]...)
	}
	return tensor.Tensor{DType: t.DType, Shape: []int{t.Shape[0], to - from}, Data: data}
}

// swap returns a copy of a matrix with its two halves of rows exchanged.
func swap(t tensor.Tensor) tensor.Tensor {
	half := len(t.Data) / 2
	t.Data = slices.Concat(t.Data[half:], t.Data[:half])
	return t
}
