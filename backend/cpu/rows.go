package cpu

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/vec"
	"github.com/lorafuse/lorafuse/ir"
)

func rmsNormKernel(r *run, l *ir.Launch) error {
	x, w, dst := r.f32(l.In[0]), r.f32(l.In[1]), r.f32(l.Out[0])
	rows, d := r.matrix(l.Out[0])
	eps := l.Attr.(ir.NormAttr).Eps
	r.rows(rows, d, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			vec.RMSNorm(dst[i*d:i*d+d], x[i*d:i*d+d], w, eps)
		}
	})
	return nil
}

func rmsNormGradKernel(r *run, l *ir.Launch) error {
	dy, x, w, dx := r.f32(l.In[0]), r.f32(l.In[1]), r.f32(l.In[2]), r.f32(l.Out[0])
	rows, d := r.matrix(l.Out[0])
	eps := l.Attr.(ir.NormAttr).Eps
	r.rows(rows, d, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			vec.RMSNormGrad(dx[i*d:i*d+d], nil, dy[i*d:i*d+d], x[i*d:i*d+d], w, eps)
		}
	})
	return nil
}

func softmaxKernel(r *run, l *ir.Launch) error {
	x, dst := r.f32(l.In[0]), r.f32(l.Out[0])
	rows, d := r.matrix(l.Out[0])
	r.rows(rows, d, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			vec.Softmax(dst[i*d:i*d+d], x[i*d:i*d+d])
		}
	})
	return nil
}

func ropeTableKernel(r *run, l *ir.Launch) error {
	pos, freq, dst := r.i32(l.In[0]), r.f32(l.In[1]), r.f32(l.Out[0])
	h, scale := len(freq), float64(l.Attr.(ir.RoPETableAttr).Scale)
	r.rows(len(pos), 32*h, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			row := dst[i*2*h : i*2*h+2*h]
			for j, f := range freq {
				sin, cos := math.Sincos(float64(float32(pos[i]) * f))
				row[j], row[h+j] = float32(float64(float32(cos))*scale), float32(float64(float32(sin))*scale)
			}
		}
	})
	return nil
}

func ropeKernel(r *run, l *ir.Launch) error {
	x, table, dst := r.f32(l.In[0]), r.f32(l.In[1]), r.f32(l.Out[0])
	a := l.Attr.(ir.RoPEAttr)
	rows, d := r.matrix(l.Out[0])
	h := a.HeadDim / 2
	r.rows(rows, d, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			cs := table[i*2*h : i*2*h+2*h]
			vec.Rotary(dst[i*d:i*d+d], x[i*d:i*d+d], a.HeadDim, cs[:h], cs[h:], a.Inverse)
		}
	})
	return nil
}

var activations = map[ir.Activation]vec.Act{ir.SiLU: vec.SiLU, ir.GELU: vec.GELU, ir.GELUTanh: vec.GELUTanh}

func gluKernel(r *run, l *ir.Launch) error {
	gate, up, dst := r.f32(l.In[0]), r.f32(l.In[1]), r.f32(l.Out[0])
	act := activations[l.Attr.(ir.GLUAttr).Act]
	r.elements(len(dst), func(lo, hi int) { vec.GLU(act, dst[lo:hi], gate[lo:hi], up[lo:hi]) })
	return nil
}

func gluGradKernel(r *run, l *ir.Launch) error {
	dy, gate, up := r.f32(l.In[0]), r.f32(l.In[1]), r.f32(l.In[2])
	dgate, dup := r.f32(l.Out[0]), r.f32(l.Out[1])
	act := activations[l.Attr.(ir.GLUAttr).Act]
	r.elements(len(dgate), func(lo, hi int) {
		vec.GLUGrad(act, dgate[lo:hi], dup[lo:hi], dy[lo:hi], gate[lo:hi], up[lo:hi])
	})
	return nil
}

func crossEntropyKernel(r *run, l *ir.Launch) error {
	x, labels := r.f32(l.In[0]), r.i32(l.In[1])
	n, v := r.matrix(l.In[0])
	if err := checkLabels(labels, v); err != nil {
		return err
	}
	loss := r.temp(n)
	r.rows(n, v, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			loss[i] = 0
			if labels[i] >= 0 {
				loss[i], _ = vec.CrossEntropy(x[i*v:i*v+v], int(labels[i]))
			}
		}
	})
	r.f32(l.Out[0])[0] = total(loss)
	return nil
}

func crossEntropyGradKernel(r *run, l *ir.Launch) error {
	x, labels, scale, dx := r.f32(l.In[0]), r.i32(l.In[1]), r.f32(l.In[2])[0], r.f32(l.Out[0])
	n, v := r.matrix(l.In[0])
	if err := checkLabels(labels, v); err != nil {
		return err
	}
	r.rows(n, v, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			row, to := x[i*v:i*v+v], dx[i*v:i*v+v]
			if labels[i] < 0 {
				clear(to)
				continue
			}
			vec.CrossEntropyGrad(to, row, int(labels[i]), vec.LogSumExp(row), scale)
		}
	})
	return nil
}

func checkLabels(labels []int32, vocab int) error {
	for i, y := range labels {
		if int(y) >= vocab {
			return errLabel(i, y, vocab)
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

// The logits that exist at one time are at most logitBytes, or those of
// logitRows rows where the vocabulary is large: reading the weights of the head
// once for fewer rows would cost more than the products.
const (
	logitBytes = 16 << 20
	logitRows  = 128
)

// linearCE computes logits and losses for stretches of the rows that have a
// label; the others cost nothing. Where dx is not nil it gets the gradient.
func (r *run) linearCE(l *ir.Launch, dx []float32, scale float32) (float32, error) {
	x, w, labels := r.f32(l.In[0]), l.In[1], r.i32(l.In[2])
	n, d := r.matrix(l.In[0])
	v, _ := r.matrix(w)
	if err := checkLabels(labels, v); err != nil {
		return 0, err
	}
	rows := r.tempWords(n)[:0]
	for i, y := range labels {
		if y >= 0 {
			rows = append(rows, int32(i))
		}
	}
	if dx != nil {
		fill(r, dx, 0)
	}
	per := min(max(logitBytes/(4*v), logitRows), max(1, len(rows)))
	tmp := r.temp(len(rows) + per*(v+2*d))
	loss, tmp := tmp[:len(rows)], tmp[len(rows):]
	logits, in, grad := tmp[:per*v], tmp[per*v:per*(v+d)], tmp[per*(v+d):]
	for lo := 0; lo < len(rows); lo += per {
		m := min(per, len(rows)-lo)
		at := rows[lo : lo+m]
		r.rows(m, d, func(a, b int) {
			for i := a; i < b; i++ {
				copy(in[i*d:i*d+d], x[int(at[i])*d:])
			}
		})
		r.dev.gemm.Run(&gemm.Call{M: m, N: v, C: logits, LDC: v,
			Pairs: []gemm.Pair{{A: gemm.Of(in, d), B: r.operand(w, true), K: d, Alpha: 1}}})
		r.rows(m, v, func(a, b int) {
			for i := a; i < b; i++ {
				row, label := logits[i*v:i*v+v], int(labels[at[i]])
				var lse float32
				loss[lo+i], lse = vec.CrossEntropy(row, label)
				if dx != nil {
					vec.CrossEntropyGrad(row, row, label, lse, scale)
				}
			}
		})
		if dx == nil {
			continue
		}
		r.dev.gemm.Run(&gemm.Call{M: m, N: d, C: grad, LDC: d,
			Pairs: []gemm.Pair{{A: gemm.Of(logits, v), B: r.operand(w, false), K: v, Alpha: 1}}})
		r.rows(m, d, func(a, b int) {
			for i := a; i < b; i++ {
				copy(dx[int(at[i])*d:int(at[i])*d+d], grad[i*d:])
			}
		})
	}
	return total(loss), nil
}

func linearCEKernel(r *run, l *ir.Launch) (err error) {
	r.f32(l.Out[0])[0], err = r.linearCE(l, nil, 0)
	return err
}

func linearCEGradKernel(r *run, l *ir.Launch) (err error) {
	r.f32(l.Out[1])[0], err = r.linearCE(l, r.f32(l.Out[0]), r.f32(l.In[3])[0])
	return err
}

func errLabel(i int, label int32, vocab int) error {
	return fmt.Errorf("label %d at %d, the vocabulary has %d", label, i, vocab)
}
