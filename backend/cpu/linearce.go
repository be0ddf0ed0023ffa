package cpu

import (
	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/vec"
)

// Logits in memory are limited to logitBytes, or to logitRows rows if the vocabulary is large: for fewer rows,
// reading the head's weights would cost more than the multiplication.
const (
	logitBytes = 32 << 20
	logitRows  = 128
)

// linearCE computes logits and losses for blocks of labelled rows. Rows without a label cost nothing.
type linearCE struct {
	r    *run
	x, w ir.Ref
	y    ir.Ref // labels
	grad bool   // dx is computed too
	each bool   // return a loss per row, not their sum

	v, d     int
	scales   []float32 // factors of the gradients: one, or one per row
	all      []float32 // the losses of all rows, where each is asked for
	in, dx   values    // of all rows
	rows     []int32   // that have a label
	labels   []int32
	loss     []float32 // of these rows
	at, m    int       // the current block: rows[at:at+m]
	gathered []float32 // its inputs
	logits   []float32 // and then their gradient
	back     []float32 // the gradient of its inputs

	forward, backward                    gemm.Call
	packForward, packBackward            bool             // there are packed weights for them
	clean, gather, lossesOfRows, scatter func(lo, hi int) // the methods, bound once
}

func newLinearCE(r *run, l *ir.Launch, grad bool) *linearCE {
	c := &linearCE{r: r, x: l.In[0], w: l.In[1], y: l.In[2], grad: grad}
	if a, ok := l.Attr.(ir.CrossEntropyAttr); ok {
		c.each = a.ByRow
	}
	c.clean, c.gather, c.lossesOfRows, c.scatter = c.cleanRows, c.gatherRows, c.losses, c.scatterRows
	c.measure()
	n, _ := r.matrix(c.x)
	per := c.rowsPerBlock(n)
	r.reserve(c.scratchSize(n, per))
	c.forward = gemm.Call{M: per, N: c.v, LDC: c.v, Pairs: []gemm.Pair{{A: gemm.Matrix{Stride: c.d}, B: r.form(c.w, true), K: c.d, Alpha: 1}}}
	r.reserveProduct(&c.forward)
	c.packForward = r.requestPack(&c.forward, 0, c.w)
	if grad {
		c.backward = gemm.Call{M: per, N: c.d, LDC: c.d, Pairs: []gemm.Pair{{A: gemm.Matrix{Stride: c.v}, B: r.form(c.w, false), K: c.v, Alpha: 1}}}
		r.reserveProduct(&c.backward)
		c.packBackward = r.requestPack(&c.backward, 0, c.w)
	}
	return c
}

func (c *linearCE) measure() {
	_, c.d = c.r.matrix(c.x)
	c.v, _ = c.r.matrix(c.w)
}

// rowsPerBlock returns the number of labelled rows to process at a time.
func (c *linearCE) rowsPerBlock(n int) int {
	return min(max(logitBytes/(4*max(1, c.v)), logitRows), max(1, n))
}

// scratchSize returns the memory in floats for n rows, with blocks of per labelled rows.
func (c *linearCE) scratchSize(n, per int) int { return 2*n + per*(c.v+2*c.d) }

// run computes the losses; with grad it also writes their gradient times scales to dx.
func (c *linearCE) run(losses []float32, dx values, scales []float32) error {
	r := c.r
	c.measure()
	c.in, c.labels, c.dx, c.scales, c.all = r.values(c.x), r.i32(c.y), dx, scales, losses
	if err := checkLabels(c.labels, c.v); err != nil {
		return err
	}
	if c.each {
		clear(losses)
	}
	tmp := r.temp(c.scratchSize(len(c.labels), c.rowsPerBlock(len(c.labels))))
	c.rows, tmp = asWords(tmp[:len(c.labels)])[:0], tmp[len(c.labels):]
	for i, y := range c.labels {
		if y >= 0 {
			c.rows = append(c.rows, int32(i))
		}
	}
	if c.grad {
		r.elements(dx.n, c.clean)
	}
	per := c.rowsPerBlock(len(c.rows))
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
	if !c.each {
		losses[0] = total(c.loss)
	}
	return nil
}

func (c *linearCE) multiply(call *gemm.Call, dst []float32, a, b gemm.Matrix, packs bool) {
	call.M, call.C = c.m, dst
	call.Pairs[0].A, call.Pairs[0].B = a, b
	if packs {
		c.r.prepack(&call.Pairs[0], c.w, call.N)
	}
	c.r.multiply(call)
}

func (c *linearCE) cleanRows(lo, hi int) { c.dx.clear(lo, hi-lo) }

func (c *linearCE) gatherRows(lo, hi int) {
	for i := lo; i < hi; i++ {
		c.in.widen(c.gathered[i*c.d:i*c.d+c.d], int(c.rows[c.at+i])*c.d)
	}
}

func (c *linearCE) losses(lo, hi int) {
	for i := lo; i < hi; i++ {
		at := c.rows[c.at+i]
		row, label := c.logits[i*c.v:i*c.v+c.v], int(c.labels[at])
		var lse float32
		c.loss[c.at+i], lse = vec.CrossEntropy(row, label)
		if c.each {
			c.all[at] = c.loss[c.at+i]
		}
		if c.grad {
			vec.CrossEntropyGrad(row, row, label, lse, c.scaleOf(at))
		}
	}
}

// scaleOf returns the gradient factor of a row.
func (c *linearCE) scaleOf(row int32) float32 {
	if c.each {
		return c.scales[row]
	}
	return c.scales[0]
}

func (c *linearCE) scatterRows(lo, hi int) {
	for i := lo; i < hi; i++ {
		from := values{f32: c.back}
		c.dx.move(int(c.rows[c.at+i])*c.d, &from, i*c.d, c.d)
	}
}

func linearCEKernel(r *run, l *ir.Launch) func() error {
	c := newLinearCE(r, l, false)
	return func() error { return c.run(r.f32(l.Out[0]), values{}, nil) }
}

func linearCEGradKernel(r *run, l *ir.Launch) func() error {
	c := newLinearCE(r, l, true)
	return func() error { return c.run(r.f32(l.Out[1]), r.values(l.Out[0]), r.f32(l.In[3])) }
}
