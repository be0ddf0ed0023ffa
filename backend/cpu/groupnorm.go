package cpu

import (
	"math"
	"unsafe"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/vec"
	"github.com/lorafuse/lorafuse/ir"
)

const (
	groupNormPart   = 32768 // elements of a part of a sample that one task takes
	groupNormRepeat = 1024  // elements that factors are repeated to at least, for long loops
)

// groupNorm is a launch of a GroupNorm, perhaps with the activation of its result. The
// sums over a group are those of its parts, in float64: they do not depend on the workers.
type groupNorm struct {
	r             *run
	l             *ir.Launch
	a             ir.GroupNormAttr
	act           vec.Act
	acts          bool
	pixels, c     int // of a sample
	parts, pixel  int // tasks of a sample, and pixels of each
	x, y          []float32
	sums          []float64 // of each part and group, with those of squares
	factor, shift []float32 // of several pixels
	sum, apply    func(lo, hi int)
}

func groupNormKernel(r *run, l *ir.Launch) func() error { return newGroupNorm(r, l).run }

// activated prepares a GroupNorm and the activation that takes its place in memory, if
// the launches begin with these.
func (r *run) activated(launches []ir.Launch) (step, bool) {
	if len(launches) < 2 || launches[0].Op != ir.GroupNorm || launches[1].Op != ir.Activate {
		return step{}, false
	}
	l, next := &launches[0], &launches[1]
	if !next.In[0].Same(l.Out[0]) || !next.Out[0].Same(l.Out[0]) {
		return step{}, false
	}
	p := newGroupNorm(r, l)
	p.act, p.acts = activations[next.Attr.(ir.ActivateAttr).Act], true
	return step{launches: launches[:2], run: p.run}, true
}

func newGroupNorm(r *run, l *ir.Launch) *groupNorm {
	s := l.In[0].Type.Shape
	p := &groupNorm{r: r, l: l, a: l.Attr.(ir.GroupNormAttr), c: s[len(s)-1].N, pixels: 1}
	for _, d := range s[1 : len(s)-1] {
		p.pixels *= d.N
	}
	p.pixel = max(1, groupNormPart/p.c)
	p.parts = (p.pixels + p.pixel - 1) / p.pixel
	r.reserve(2*p.sizeOfSums() + 2*p.sizeOfFactors())
	p.sum, p.apply = p.sumParts, p.applyParts
	return p
}

func (p *groupNorm) sizeOfSums() int { return 2 * p.parts * p.a.Groups }

// sizeOfFactors is the channels of some pixels.
func (p *groupNorm) sizeOfFactors() int { return p.c * max(1, min(p.pixels, groupNormRepeat/p.c)) }

func (p *groupNorm) run() error {
	r, sums, n := p.r, p.sizeOfSums(), p.sizeOfFactors()
	x, y := r.f32(p.l.In[0]), r.f32(p.l.Out[0])
	free := r.temp(2*sums + 2*n)
	p.sums = asDoubles(free[:2*sums])
	p.factor, p.shift = free[2*sums:][:n], free[2*sums+n:]
	for size := p.pixels * p.c; len(x) > 0; x, y = x[size:], y[size:] {
		p.x, p.y = x[:size], y[:size]
		r.spread(p.parts, 1, p.sum)
		p.setFactors()
		r.spread(p.parts, 1, p.apply)
	}
	return nil
}

// part is where a part of the sample begins and ends.
func (p *groupNorm) part(i int) (lo, hi int) {
	return i * p.pixel * p.c, min(p.pixels, (i+1)*p.pixel) * p.c
}

func (p *groupNorm) sumParts(lo, hi int) {
	size := p.c / p.a.Groups
	for i := lo; i < hi; i++ {
		from, to := p.part(i)
		for g := range p.a.Groups {
			at := 2 * (i*p.a.Groups + g)
			p.sums[at], p.sums[at+1] = sumsOf(p.x[from:to], p.c, g*size, size)
		}
	}
}

// sumsOf adds up the elements [first,first+size) of each row of c elements, and their
// squares, four at a time.
func sumsOf(x []float32, c, first, size int) (sum, squares float64) {
	var s0, s1, s2, s3, q0, q1, q2, q3 float64
	for ; len(x) >= c; x = x[c:] {
		row := x[first : first+size]
		for ; len(row) >= 4; row = row[4:] {
			a, b, c, d := float64(row[0]), float64(row[1]), float64(row[2]), float64(row[3])
			s0, s1, s2, s3 = s0+a, s1+b, s2+c, s3+d
			q0, q1, q2, q3 = q0+a*a, q1+b*b, q2+c*c, q3+d*d
		}
		for _, v := range row {
			s0, q0 = s0+float64(v), q0+float64(v)*float64(v)
		}
	}
	return s0 + s1 + s2 + s3, q0 + q1 + q2 + q3
}

// setFactors makes of the sums what elements are multiplied with, and what is added.
func (p *groupNorm) setFactors() {
	w, b := p.r.f32(p.l.In[1]), p.r.f32(p.l.In[2])
	size := p.c / p.a.Groups
	n := float64(p.pixels * size)
	for g := range p.a.Groups {
		var sum, squares float64
		for i := range p.parts {
			at := 2 * (i*p.a.Groups + g)
			sum += p.sums[at]
			squares += p.sums[at+1]
		}
		mean := sum / n
		scale := 1 / math.Sqrt(max(0, squares/n-mean*mean)+float64(p.a.Eps))
		for j := g * size; j < (g+1)*size; j++ {
			factor := scale * float64(w[j])
			p.factor[j], p.shift[j] = float32(factor), float32(float64(b[j])-mean*factor)
		}
	}
	for at := p.c; at < len(p.factor); at += p.c {
		copy(p.factor[at:], p.factor[:p.c])
		copy(p.shift[at:], p.shift[:p.c])
	}
}

func (p *groupNorm) applyParts(lo, hi int) {
	from, _ := p.part(lo)
	_, to := p.part(hi - 1)
	for n := len(p.factor); from < to; from += n {
		n = min(n, to-from)
		y := p.y[from : from+n]
		vec.Mul(y, p.x[from:from+n], p.factor)
		vec.Add(y, y, p.shift)
		if p.acts {
			vec.Activate(p.act, y, y)
		}
	}
}

// asDoubles gives the memory of x, from the beginning of a run's own, to float64.
func asDoubles(x []float32) []float64 {
	return unsafe.Slice((*float64)(unsafe.Pointer(unsafe.SliceData(x))), len(x)/2)
}
