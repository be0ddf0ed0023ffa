package cpu

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/vec"
)

func rmsNormKernel(r *run, l *ir.Launch) func() error {
	eps := l.Attr.(ir.NormAttr).Eps
	var x, dst values
	var w []float32
	_, d := r.matrix(l.Out[0])
	r.reserveRoom(l, 2, d)
	part := func(lo, hi int, m *wideScratch) {
		for i := lo * d; i < hi*d; i += d {
			m.reset(d)
			y := dst.out(i, d, m)
			vec.RMSNorm(y, x.in(i, d, m), w, eps)
			dst.store(i, y)
		}
	}
	return func() error {
		x, w, dst = r.values(l.In[0]), r.f32(l.In[1]), r.values(l.Out[0])
		var rows int
		rows, d = r.matrix(l.Out[0])
		r.rowsIn(rows, d, part)
		return nil
	}
}

func rmsNormGradKernel(r *run, l *ir.Launch) func() error {
	eps := l.Attr.(ir.NormAttr).Eps
	var dy, x, dx values
	var w []float32
	_, d := r.matrix(l.Out[0])
	r.reserveRoom(l, 3, d)
	part := func(lo, hi int, m *wideScratch) {
		for i := lo * d; i < hi*d; i += d {
			m.reset(d)
			y := dx.out(i, d, m)
			vec.RMSNormGrad(y, nil, dy.in(i, d, m), x.in(i, d, m), w, eps)
			dx.store(i, y)
		}
	}
	return func() error {
		dy, x, w, dx = r.values(l.In[0]), r.values(l.In[1]), r.f32(l.In[2]), r.values(l.Out[0])
		var rows int
		rows, d = r.matrix(l.Out[0])
		r.rowsIn(rows, d, part)
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

var activations = map[ir.Activation]vec.Act{ir.SiLU: vec.SiLU, ir.GELU: vec.GELU, ir.GELUTanh: vec.GELUTanh}

func activateKernel(r *run, l *ir.Launch) func() error {
	act := activations[l.Attr.(ir.ActivateAttr).Act]
	var x, dst []float32
	part := func(lo, hi int) { vec.Activate(act, dst[lo:hi], x[lo:hi]) }
	return func() error {
		x, dst = r.f32(l.In[0]), r.f32(l.Out[0])
		r.elements(len(dst), part)
		return nil
	}
}

func activateGradKernel(r *run, l *ir.Launch) func() error {
	act := activations[l.Attr.(ir.ActivateAttr).Act]
	var dy, x, dx []float32
	part := func(lo, hi int) { vec.ActivateGrad(act, dx[lo:hi], dy[lo:hi], x[lo:hi]) }
	return func() error {
		dy, x, dx = r.f32(l.In[0]), r.f32(l.In[1]), r.f32(l.Out[0])
		r.elements(len(dx), part)
		return nil
	}
}

func gluKernel(r *run, l *ir.Launch) func() error {
	act := activations[l.Attr.(ir.GLUAttr).Act]
	var gate, up, dst values
	r.reserveRoom(l, 3, storedElements)
	part := func(lo, hi int, m *wideScratch) {
		for n := 0; lo < hi; lo += n {
			n = m.reset(hi - lo)
			y := dst.out(lo, n, m)
			vec.GLU(act, y, gate.in(lo, n, m), up.in(lo, n, m))
			dst.store(lo, y)
		}
	}
	return func() error {
		gate, up, dst = r.values(l.In[0]), r.values(l.In[1]), r.values(l.Out[0])
		r.elementsIn(dst.n, part)
		return nil
	}
}

func gluGradKernel(r *run, l *ir.Launch) func() error {
	act := activations[l.Attr.(ir.GLUAttr).Act]
	var dy, gate, up, dgate, dup values
	r.reserveRoom(l, 5, storedElements)
	part := func(lo, hi int, m *wideScratch) {
		for n := 0; lo < hi; lo += n {
			n = m.reset(hi - lo)
			g, u := dgate.out(lo, n, m), dup.out(lo, n, m)
			vec.GLUGrad(act, g, u, dy.in(lo, n, m), gate.in(lo, n, m), up.in(lo, n, m))
			dgate.store(lo, g)
			dup.store(lo, u)
		}
	}
	return func() error {
		dy, gate, up = r.values(l.In[0]), r.values(l.In[1]), r.values(l.In[2])
		dgate, dup = r.values(l.Out[0]), r.values(l.Out[1])
		r.elementsIn(dgate.n, part)
		return nil
	}
}

func crossEntropyKernel(r *run, l *ir.Launch) func() error {
	a, _ := l.Attr.(ir.CrossEntropyAttr)
	if !a.ByRow {
		n, _ := r.matrix(l.In[0])
		r.reserve(n)
	}
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
		if a.ByRow {
			loss = r.f32(l.Out[0])
		} else {
			loss = r.temp(n)
		}
		r.rows(n, v, part)
		if !a.ByRow {
			r.f32(l.Out[0])[0] = total(loss)
		}
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
