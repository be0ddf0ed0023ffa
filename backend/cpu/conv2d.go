package cpu

import (
	"unsafe"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// Limits of the strip of an image that is unfolded at a time: small enough for a cache, and large enough that packing
// the weight for it costs little.
const (
	stripLeast   = 256 << 10 // floats
	stripMost    = 4 << 20
	stripWeights = 2 // times the weight, in between
)

// conv2D is a launch of a convolution. An image is unfolded in strips of rows, each pixel to one row of the window,
// [kw·c] (im2col, Chellapilla et al. 2006, along one axis). Each row of the window is then a matrix multiplication of
// unfolded rows further down, and one call adds them up. The unfolded strip is kw times the size of the image, not
// kh·kw times.
//
// Image rows that are stride apart form a contiguous group: the first group begins with the first row of the strip,
// the second with the next row.
type conv2D struct {
	r *run
	l *ir.Launch
	a ir.Conv2DAttr

	h, w, c     int // of an image
	oh, ow, out int
	kh, kw      int
	rows        int   // of the result that a strip gives at most
	first       []int // row of the strip where the group begins that row ky of the window reads, with ky/stride
	call        gemm.Call

	image, strip []float32 // under way
	y, n         int       // the first row of the result that the strip is for, and how many
	unfold       func(lo, hi int)
}

func conv2DKernel(r *run, l *ir.Launch) func() error {
	x, w, y := l.In[0].Type.Shape, l.In[1].Type.Shape, l.Out[0].Type.Shape
	p := &conv2D{r: r, l: l, a: l.Attr.(ir.Conv2DAttr), h: x[1].N, w: x[2].N, c: x[3].N, oh: y[1].N, ow: y[2].N,
		out: w[0].N, kh: w[1].N, kw: w[2].N}
	p.call = gemm.Call{N: p.out, LDC: p.out, Pairs: make([]gemm.Pair, p.kh)}
	for ky := range p.call.Pairs {
		b := r.form(l.In[1], true)
		b.Stride = p.kh * p.kw * p.c
		p.call.Pairs[ky] = gemm.Pair{A: gemm.Matrix{Stride: p.kw * p.c}, B: b, K: p.kw * p.c, Alpha: 1}
	}
	if p.flat() {
		p.call.M, _ = r.matrix(l.Out[0])
		r.reserveProduct(&p.call)
		return p.multiplyFlat
	}
	if p.fewer() {
		return newWinograd(p).run
	}
	strip := min(max(stripLeast, stripWeights*p.kh*p.kw*p.c*p.out), stripMost)
	p.rows = max(1, min(p.oh, strip/(p.ow*p.kw*p.c)))
	p.call.M = p.rows * p.ow
	r.reserveProduct(&p.call)
	r.reserve(p.groups(p.rows) * p.ow * p.kw * p.c)
	p.unfold = p.unfoldRows
	return p.run
}

// flat reports whether the pixels of the images can be multiplied without unfolding.
func (p *conv2D) flat() bool {
	a := p.a
	return p.kh == 1 && p.kw == 1 && a.Stride == 1 && a.Top+a.Left+a.Bottom+a.Right == 0
}

// multiplyFlat computes the result where the window is one pixel.
func (p *conv2D) multiplyFlat() error {
	r := p.r
	p.begin()
	p.call.M, _ = r.matrix(p.l.Out[0])
	if p.call.M > 0 {
		p.call.C, p.call.Pairs[0].A = r.f32(p.l.Out[0]), gemm.Of(r.f32(p.l.In[0]), p.c)
		r.multiply(&p.call)
	}
	return nil
}

// begin sets the parts of the call that are the same for all strips.
func (p *conv2D) begin() {
	b := p.r.operand(p.l.In[1], true)
	for ky := range p.call.Pairs {
		pair := &p.call.Pairs[ky]
		pair.B.Data = unsafe.Add(b.Data, ky*pair.K*b.Elem.Size())
	}
	if p.a.HasBias {
		p.call.Bias = p.r.f32(p.l.In[2])
	}
}

func (p *conv2D) run() error {
	r := p.r
	p.begin()
	x, y := r.f32(p.l.In[0]), r.f32(p.l.Out[0])
	size, wide := p.h*p.w*p.c, p.ow*p.kw*p.c
	for ; len(x) >= size && len(y) > 0; x = x[size:] {
		p.image = x[:size]
		for p.y = 0; p.y < p.oh; p.y += p.n {
			p.n = min(p.rows, p.oh-p.y)
			rows := p.groups(p.n)
			p.strip = r.temp(rows * wide)
			r.rows(rows, wide, p.unfold)
			p.call.M = p.n * p.ow
			for ky := range p.call.Pairs {
				pair := &p.call.Pairs[ky]
				pair.A = gemm.Of(p.strip[p.first[ky]*wide:], pair.A.Stride)
			}
			p.call.C, y = y[:p.call.M*p.out], y[p.call.M*p.out:]
			r.multiply(&p.call)
		}
	}
	return nil
}

// groups sets where the groups begin in the strip of n rows of the result, and gives the
// number of its rows.
func (p *conv2D) groups(n int) (rows int) {
	if p.first == nil {
		p.first = make([]int, p.kh)
	}
	for ky := range p.kh {
		if ky >= p.a.Stride {
			p.first[ky] = p.first[ky-p.a.Stride] + 1
			continue
		}
		p.first[ky] = rows
		rows += p.groupRows(ky, n)
	}
	return rows
}

// groupRows returns the number of rows in the group that window row ky starts, in a strip for n rows of the result.
func (p *conv2D) groupRows(ky, n int) int { return n + (p.kh-1-ky)/p.a.Stride }

// unfoldRows fills rows of the strip.
func (p *conv2D) unfoldRows(lo, hi int) {
	wide := p.ow * p.kw * p.c
	ky, begin := 0, 0
	for i := lo; i < hi; i++ {
		for i-begin >= p.groupRows(ky, p.n) {
			begin += p.groupRows(ky, p.n)
			ky++
		}
		y := (p.y+i-begin)*p.a.Stride + ky - p.a.Top
		row := p.strip[i*wide : (i+1)*wide]
		if y < 0 || y >= p.h {
			clear(row)
			continue
		}
		p.unfoldRow(row, p.image[y*p.w*p.c:(y+1)*p.w*p.c])
	}
}

// unfoldRow copies to each pixel of the result what a row of the window sees of x.
func (p *conv2D) unfoldRow(dst, x []float32) {
	n := p.kw * p.c
	for at := -p.a.Left * p.c; len(dst) >= n; at += p.a.Stride * p.c {
		window := dst[:n]
		dst = dst[n:]
		from, to := min(max(0, -at), n), max(0, min(n, len(x)-at))
		if from >= to {
			clear(window)
			continue
		}
		clear(window[:from])
		copy(window[from:to], x[at+from:])
		clear(window[to:])
	}
}
