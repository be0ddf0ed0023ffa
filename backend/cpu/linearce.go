package cpu

import (
	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/vec"
	"github.com/lorafuse/lorafuse/ir"
)

// The logits that exist at one time are at most logitBytes, or those of
// logitRows rows where the vocabulary is large: reading the weights of the head
// once for fewer rows would cost more than the products.
const (
	logitBytes = 32 << 20
	logitRows  = 128
)

// linearCE computes logits and losses for stretches of the rows that have a
// label; the others cost nothing.
type linearCE struct {
	r    *run
	x, w ir.Ref
	y    ir.Ref // labels
	grad bool   // dx is computed too

	v, d     int
	scale    float32
	in, dx   values  // of all rows
	rows     []int32 // that have a label
	labels   []int32
	loss     []float32 // of these rows
	at, m    int       // the stretch: rows[at:at+m]
	gathered []float32 // its inputs
	logits   []float32 // and then their gradient
	back     []float32 // the gradient of its inputs

	forward, backward                    gemm.Call
	packForward, packBackward            bool             // there are packed weights for them
	clean, gather, lossesOfRows, scatter func(lo, hi int) // the methods, bound once
}

func newLinearCE(r *run, l *ir.Launch, grad bool) *linearCE {
	c := &linearCE{r: r, x: l.In[0], w: l.In[1], y: l.In[2], grad: grad}
	c.clean, c.gather, c.lossesOfRows, c.scatter = c.cleanRows, c.gatherRows, c.losses, c.scatterRows
	c.measure()
	n, _ := r.matrix(c.x)
	per := c.stretch(n)
	r.reserve(c.room(n, per))
	c.forward = gemm.Call{M: per, N: c.v, LDC: c.v, Pairs: []gemm.Pair{{A: gemm.Matrix{Stride: c.d}, B: r.form(c.w, true), K: c.d, Alpha: 1}}}
	r.reserveProduct(&c.forward)
	c.packForward = r.want(&c.forward, 0, c.w)
	if grad {
		c.backward = gemm.Call{M: per, N: c.d, LDC: c.d, Pairs: []gemm.Pair{{A: gemm.Matrix{Stride: c.v}, B: r.form(c.w, false), K: c.v, Alpha: 1}}}
		r.reserveProduct(&c.backward)
		c.packBackward = r.want(&c.backward, 0, c.w)
	}
	return c
}

func (c *linearCE) measure() {
	_, c.d = c.r.matrix(c.x)
	c.v, _ = c.r.matrix(c.w)
}

// stretch is how many of n rows with a label are taken at a time.
func (c *linearCE) stretch(n int) int {
	return min(max(logitBytes/(4*max(1, c.v)), logitRows), max(1, n))
}

// room is the memory in floats for n rows, labels of which are in stretches of
// per.
func (c *linearCE) room(n, per int) int { return 2*n + per*(c.v+2*c.d) }

// run gives the sum of the losses; with grad, dx gets its gradient times scale.
func (c *linearCE) run(dx values, scale float32) (float32, error) {
	r := c.r
	c.measure()
	c.in, c.labels, c.dx, c.scale = r.values(c.x), r.i32(c.y), dx, scale
	if err := checkLabels(c.labels, c.v); err != nil {
		return 0, err
	}
	tmp := r.temp(c.room(len(c.labels), c.stretch(len(c.labels))))
	c.rows, tmp = asWords(tmp[:len(c.labels)])[:0], tmp[len(c.labels):]
	for i, y := range c.labels {
		if y >= 0 {
			c.rows = append(c.rows, int32(i))
		}
	}
	if c.grad {
		r.elements(dx.n, c.clean)
	}
	per := c.stretch(len(c.rows))
	c.loss, tmp = tmp[:len(c.rows)], tmp[len(c.rows):]
	c.logits, tmp = tmp[:per*c.v], tmp[per*c.v:]
	c.gathered, c.back = tmp[:per*c.d], tmp[per*c.d:2*per*c.d]
	for c.at = 0; c.at < len(c.rows); c.at += per {
		c.m = min(per, len(c.rows)-c.at)
		r.rows(c.m, c.d, c.gather)
		c.multiply(&c.forward, c.logits, gemm.Of(c.gathered, c.d), r.operand(c.w, true), c.packForward)
		r.rows(c.m, c.v, c.lossesOfRows)
		if c.grad {
			c.multiply(&c.backward, c.back, gemm.Of(c.logits, c.v), r.operand(c.w, false), c.packBackward)
			r.rows(c.m, c.d, c.scatter)
		}
	}
	return total(c.loss), nil
}

func (c *linearCE) multiply(call *gemm.Call, dst []float32, a, b gemm.Matrix, packs bool) {
	call.M, call.C = c.m, dst
	call.Pairs[0].A, call.Pairs[0].B = a, b
	if packs {
		c.r.prepack(&call.Pairs[0], c.w, call.N)
	}
	c.r.dev.gemm.Run(call)
}

func (c *linearCE) cleanRows(lo, hi int) { c.dx.clear(lo, hi-lo) }

func (c *linearCE) gatherRows(lo, hi int) {
	for i := lo; i < hi; i++ {
		c.in.widen(c.gathered[i*c.d:i*c.d+c.d], int(c.rows[c.at+i])*c.d)
	}
}

func (c *linearCE) losses(lo, hi int) {
	for i := lo; i < hi; i++ {
		row, label := c.logits[i*c.v:i*c.v+c.v], int(c.labels[c.rows[c.at+i]])
		var lse float32
		c.loss[c.at+i], lse = vec.CrossEntropy(row, label)
		if c.grad {
			vec.CrossEntropyGrad(row, row, label, lse, c.scale)
		}
	}
}

func (c *linearCE) scatterRows(lo, hi int) {
	for i := lo; i < hi; i++ {
		from := values{f32: c.back}
		c.dx.move(int(c.rows[c.at+i])*c.d, &from, i*c.d, c.d)
	}
}

func linearCEKernel(r *run, l *ir.Launch) func() error {
	c := newLinearCE(r, l, false)
	return func() (err error) {
		r.f32(l.Out[0])[0], err = c.run(values{}, 0)
		return err
	}
}

func linearCEGradKernel(r *run, l *ir.Launch) func() error {
	c := newLinearCE(r, l, true)
	return func() (err error) {
		r.f32(l.Out[1])[0], err = c.run(r.values(l.Out[0]), r.f32(l.In[3])[0])
		return err
	}
}
