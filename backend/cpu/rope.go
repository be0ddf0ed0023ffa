package cpu

import (
	"math"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/vec"
)

func ropeTableKernel(r *run, l *ir.Launch) func() error {
	scale := float64(l.Attr.(ir.RoPETableAttr).Scale)
	var pos []int32
	var freq, dst []float32
	part := func(lo, hi int) {
		h := len(freq)
		for i := lo; i < hi; i++ {
			row := dst[i*2*h : i*2*h+2*h]
			for j, f := range freq {
				sin, cos := math.Sincos(float64(float32(pos[i]) * f))
				row[j], row[h+j] = float32(float64(float32(cos))*scale), float32(float64(float32(sin))*scale)
			}
		}
	}
	return func() error {
		pos, freq, dst = r.i32(l.In[0]), r.f32(l.In[1]), r.f32(l.Out[0])
		r.rows(len(pos), 32*len(freq), part)
		return nil
	}
}

func ropeKernel(r *run, l *ir.Launch) func() error {
	a := l.Attr.(ir.RoPEAttr)
	var x, dst values
	var table []float32
	_, d := r.matrix(l.Out[0])
	r.reserveRoom(l, 2, d)
	turn := vec.Rotary
	if a.Interleaved {
		turn = rotateNeighbours
	}
	part := func(lo, hi int, m *wideScratch) {
		h := a.HeadDim / 2
		for i := lo; i < hi; i++ {
			cs := table[i*2*h : i*2*h+2*h]
			m.reset(d)
			y := dst.out(i*d, d, m)
			turn(y, x.in(i*d, d, m), a.HeadDim, cs[:h], cs[h:], a.Inverse)
			dst.store(i*d, y)
		}
	}
	return func() error {
		x, table, dst = r.values(l.In[0]), r.f32(l.In[1]), r.values(l.Out[0])
		var rows int
		rows, d = r.matrix(l.Out[0])
		r.rowsIn(rows, d, part)
		return nil
	}
}

// rotateNeighbours applies rotary embeddings as vec.Rotary does, for pairs (x[2j], x[2j+1]) of each head of size d.
func rotateNeighbours(dst, x []float32, d int, cos, sin []float32, inverse bool) {
	sign := float32(1)
	if inverse {
		sign = -1
	}
	for ; len(x) >= d; x, dst = x[d:], dst[d:] {
		head, to := x[:d], dst[:d]
		for j := 0; j+1 < len(head) && j+1 < len(to); j += 2 {
			c, s := cos[j/2], sign*sin[j/2]
			a, b := head[j], head[j+1]
			to[j], to[j+1] = a*c-b*s, b*c+a*s
		}
	}
}
