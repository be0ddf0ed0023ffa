package cpu

import (
	"math"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/vec"
)

// affine returns the weight and bias of a normalisation whose rows have d elements. If one is absent, it returns ones
// or zeros in temporary memory.
func (r *run) affine(a ir.LayerNormAttr, d int, in []ir.Ref) (w, b []float32) {
	free := r.temp(2 * d)
	w, b = free[:d], free[d:]
	if a.HasWeight {
		w, in = r.f32(in[0]), in[1:]
	} else {
		for i := range w {
			w[i] = 1
		}
	}
	if a.HasBias {
		b = r.f32(in[0])
	} else {
		clear(b)
	}
	return w, b
}

func layerNormKernel(r *run, l *ir.Launch) func() error {
	a, d := l.Attr.(ir.LayerNormAttr), l.In[0].Type.Last().N
	r.reserve(2 * d)
	var x, w, b, dst []float32
	part := func(lo, hi int) {
		for i := lo; i < hi; i++ {
			vec.LayerNorm(dst[i*d:i*d+d], x[i*d:i*d+d], w, b, a.Eps)
		}
	}
	return func() error {
		x, dst = r.f32(l.In[0]), r.f32(l.Out[0])
		w, b = r.affine(a, d, l.In[1:])
		r.rows(len(dst)/d, d, part)
		return nil
	}
}

func layerNormGradKernel(r *run, l *ir.Launch) func() error {
	a, d := l.Attr.(ir.LayerNormAttr), l.In[0].Type.Last().N
	r.reserve(2 * d)
	var dy, x, w, dx []float32
	part := func(lo, hi int) {
		for i := lo; i < hi; i++ {
			layerNormGrad(dx[i*d:i*d+d], dy[i*d:i*d+d], x[i*d:i*d+d], w, a.Eps)
		}
	}
	return func() error {
		dy, x, dx = r.f32(l.In[0]), r.f32(l.In[1]), r.f32(l.Out[0])
		w, _ = r.affine(a, d, l.In[2:])
		r.rows(len(dx)/d, d, part)
		return nil
	}
}

// layerNormGrad computes the gradient of a row for x; dx may be dy. With c = x − mean, r = rsqrt(mean(c²)+eps) and u
// = dy·w: dx = r·(u − mean(u) − c·r²·mean(u·c)).
func layerNormGrad(dx, dy, x, w []float32, eps float32) {
	n := float64(len(x))
	mean := vec.Sum(x) / float32(len(x))
	dy, w, dx = dy[:len(x)], w[:len(x)], dx[:len(x)]
	var squares, sum, cross float64
	for i, v := range x {
		c, u := float64(v-mean), float64(dy[i])*float64(w[i])
		squares += c * c
		sum += u
		cross += u * c
	}
	r := 1 / math.Sqrt(squares/n+float64(eps))
	shift, slope, scale := float32(sum/n), float32(r*r*cross/n), float32(r)
	for i, v := range x {
		dx[i] = scale * (dy[i]*w[i] - shift - (v-mean)*slope)
	}
}
