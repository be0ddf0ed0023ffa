package cpu

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/vec"
	"github.com/lorafuse/lorafuse/ir"
)

func rmsNormKernel(r *run, l *ir.Launch) func() error {
	eps := l.Attr.(ir.NormAttr).Eps
	var x, w, dst []float32
	var d int
	part := func(lo, hi int) {
		for i := lo; i < hi; i++ {
			vec.RMSNorm(dst[i*d:i*d+d], x[i*d:i*d+d], w, eps)
		}
	}
	return func() error {
		x, w, dst = r.f32(l.In[0]), r.f32(l.In[1]), r.f32(l.Out[0])
		var rows int
		rows, d = r.matrix(l.Out[0])
		r.rows(rows, d, part)
		return nil
	}
}

func rmsNormGradKernel(r *run, l *ir.Launch) func() error {
	eps := l.Attr.(ir.NormAttr).Eps
	var dy, x, w, dx []float32
	var d int
	part := func(lo, hi int) {
		for i := lo; i < hi; i++ {
			vec.RMSNormGrad(dx[i*d:i*d+d], nil, dy[i*d:i*d+d], x[i*d:i*d+d], w, eps)
		}
	}
	return func() error {
		dy, x, w, dx = r.f32(l.In[0]), r.f32(l.In[1]), r.f32(l.In[2]), r.f32(l.Out[0])
		var rows int
		rows, d = r.matrix(l.Out[0])
		r.rows(rows, d, part)
		return nil
	}
}

func softmaxKernel(r *run, l *ir.Launch) func() error {
	var x, dst []float32
	var d int
	part := func(lo, hi int) {
		for i := lo; i < hi; i++ {
			vec.Softmax(dst[i*d:i*d+d], x[i*d:i*d+d])
		}
	}
	return func() error {
		x, dst = r.f32(l.In[0]), r.f32(l.Out[0])
		var rows int
		rows, d = r.matrix(l.Out[0])
		r.rows(rows, d, part)
		return nil
	}
}

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
	var x, table, dst []float32
	var d int
	part := func(lo, hi int) {
		h := a.HeadDim / 2
		for i := lo; i < hi; i++ {
			cs := table[i*2*h : i*2*h+2*h]
			vec.Rotary(dst[i*d:i*d+d], x[i*d:i*d+d], a.HeadDim, cs[:h], cs[h:], a.Inverse)
		}
	}
	return func() error {
		x, table, dst = r.f32(l.In[0]), r.f32(l.In[1]), r.f32(l.Out[0])
		var rows int
		rows, d = r.matrix(l.Out[0])
		r.rows(rows, d, part)
		return nil
	}
}

var activations = map[ir.Activation]vec.Act{ir.SiLU: vec.SiLU, ir.GELU: vec.GELU, ir.GELUTanh: vec.GELUTanh}

func gluKernel(r *run, l *ir.Launch) func() error {
	act := activations[l.Attr.(ir.GLUAttr).Act]
	var gate, up, dst []float32
	part := func(lo, hi int) { vec.GLU(act, dst[lo:hi], gate[lo:hi], up[lo:hi]) }
	return func() error {
		gate, up, dst = r.f32(l.In[0]), r.f32(l.In[1]), r.f32(l.Out[0])
		r.elements(len(dst), part)
		return nil
	}
}

func gluGradKernel(r *run, l *ir.Launch) func() error {
	act := activations[l.Attr.(ir.GLUAttr).Act]
	var dy, gate, up, dgate, dup []float32
	part := func(lo, hi int) {
		vec.GLUGrad(act, dgate[lo:hi], dup[lo:hi], dy[lo:hi], gate[lo:hi], up[lo:hi])
	}
	return func() error {
		dy, gate, up = r.f32(l.In[0]), r.f32(l.In[1]), r.f32(l.In[2])
		dgate, dup = r.f32(l.Out[0]), r.f32(l.Out[1])
		r.elements(len(dgate), part)
		return nil
	}
}

func crossEntropyKernel(r *run, l *ir.Launch) func() error {
	n, _ := r.matrix(l.In[0])
	r.reserve(n)
	var x, loss []float32
	var labels []int32
	var v int
	part := func(lo, hi int) {
		for i := lo; i < hi; i++ {
			loss[i] = 0
			if labels[i] >= 0 {
				loss[i], _ = vec.CrossEntropy(x[i*v:i*v+v], int(labels[i]))
			}
		}
	}
	return func() error {
		x, labels = r.f32(l.In[0]), r.i32(l.In[1])
		var n int
		n, v = r.matrix(l.In[0])
		if err := checkLabels(labels, v); err != nil {
			return err
		}
		loss = r.temp(n)
		r.rows(n, v, part)
		r.f32(l.Out[0])[0] = total(loss)
		return nil
	}
}

func crossEntropyGradKernel(r *run, l *ir.Launch) func() error {
	var x, dx []float32
	var labels []int32
	var scale float32
	var v int
	part := func(lo, hi int) {
		for i := lo; i < hi; i++ {
			row, to := x[i*v:i*v+v], dx[i*v:i*v+v]
			if labels[i] < 0 {
				clear(to)
				continue
			}
			vec.CrossEntropyGrad(to, row, int(labels[i]), vec.LogSumExp(row), scale)
		}
	}
	return func() error {
		x, labels, scale, dx = r.f32(l.In[0]), r.i32(l.In[1]), r.f32(l.In[2])[0], r.f32(l.Out[0])
		var n int
		n, v = r.matrix(l.In[0])
		if err := checkLabels(labels, v); err != nil {
			return err
		}
		r.rows(n, v, part)
		return nil
	}
}

func checkLabels(labels []int32, vocab int) error {
	for i, y := range labels {
		if int(y) >= vocab {
			return fmt.Errorf("label %d at %d, the vocabulary has %d", y, i, vocab)
		}
	}
	return nil
}

// total adds up in float64, in order.
func total(x []float32) float32 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v)
	}
	return float32(sum)
}
