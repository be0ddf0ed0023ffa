package cpu

import (
	"math"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/vec"
)

const (
	groupNormPart = 32768 // elements of a part of a sample that one task takes
	groupNormWide = 512   // elements, of several pixels, that loops have at least
)

// groupNorm is a launch of a GroupNorm, optionally with the activation of its result.
//
// Sums are split into fixed parts, so they do not depend on the workers. Within a part they are float32 sums over
// pixels of differences to the first pixels, so that squares do not cancel if the mean is large; over parts and
// channels they are float64.
type groupNorm struct {
	r            *run
	l            *ir.Launch
	a            ir.GroupNormAttr
	acts         bool
	act          vec.Act
	pixels, c    int // of a sample
	parts, pixel int // tasks of a sample, and pixels of each
	wide         int // elements of as many pixels as are taken at once

	x, y          []float32 // of the sample under way
	sums          []float32 // per part: differences, their sums, sums of their squares
	factor, shift []float32 // of the channels of several pixels
	sum, squares  []float64 // of a group
	add, apply    func(lo, hi int)
}

func groupNormKernel(r *run, l *ir.Launch) func() error { return newGroupNorm(r, l).run }

// activated prepares a GroupNorm with the activation that overwrites it in place, if the launches begin with these
// two.
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
	p.wide = p.c * max(1, min(p.pixel, p.pixels, groupNormWide/p.c))
	p.sum, p.squares = make([]float64, p.a.Groups), make([]float64, p.a.Groups)
	r.reserve((3*p.parts + 2) * p.wide)
	p.add, p.apply = p.addParts, p.applyParts
	return p
}

func (p *groupNorm) run() error {
	r, n := p.r, p.wide
	x, y := r.f32(p.l.In[0]), r.f32(p.l.Out[0])
	free := r.temp((3*p.parts + 2) * n)
	p.factor, p.shift, p.sums = free[:n], free[n:2*n], free[2*n:]
	for size := p.pixels * p.c; len(x) > 0; x, y = x[size:], y[size:] {
		p.x, p.y = x[:size], y[:size]
		r.spread(p.parts, 1, p.add)
		p.setFactors()
		r.spread(p.parts, 1, p.apply)
	}
	return nil
}

// part returns the bounds of part i of the sample.
func (p *groupNorm) part(i int) (lo, hi int) {
	return i * p.pixel * p.c, min(p.pixels, (i+1)*p.pixel) * p.c
}

// sumBuffers returns the memory for the sums of part i.
func (p *groupNorm) sumBuffers(i int) (d, sum, squares []float32) {
	room := p.sums[3*i*p.wide:][:3*p.wide]
	return room[:p.wide], room[p.wide : 2*p.wide], room[2*p.wide:]
}

func (p *groupNorm) addParts(lo, hi int) {
	for i := lo; i < hi; i++ {
		d, sum, squares := p.sumBuffers(i)
		clear(sum)
		clear(squares)
		from, to := p.part(i)
		x := p.x[from:to]
		for at := p.wide; at < len(x); at += p.wide {
			n := min(p.wide, len(x)-at)
			vec.Sub(d[:n], x[at:at+n], x)
			vec.Add(sum[:n], sum, d)
			vec.FMA(squares[:n], d, d)
		}
	}
}

// collect adds up the sums of all parts by group, of x itself.
func (p *groupNorm) collect() {
	clear(p.sum)
	clear(p.squares)
	size := p.c / p.a.Groups
	for i := range p.parts {
		from, to := p.part(i)
		_, sums, squares := p.sumBuffers(i)
		first := p.x[from:to]
		first = first[:min(p.wide, len(first))]
		rows, more := (to-from)/p.wide, (to-from)%p.wide
		for j, v := range first {
			n, k, s := float64(rows), float64(v), float64(sums[j])
			if j < more {
				n++
			}
			g := j % p.c / size
			p.sum[g] += n*k + s
			p.squares[g] += n*k*k + 2*k*s + float64(squares[j])
		}
	}
}

// setFactors converts the sums to the factor and the offset of each channel.
func (p *groupNorm) setFactors() {
	p.collect()
	w, b := p.r.f32(p.l.In[1]), p.r.f32(p.l.In[2])
	size := p.c / p.a.Groups
	n := float64(p.pixels * size)
	for j := range p.c {
		mean := p.sum[j/size] / n
		variance := max(0, p.squares[j/size]/n-mean*mean)
		factor := float64(w[j]) / math.Sqrt(variance+float64(p.a.Eps))
		p.factor[j], p.shift[j] = float32(factor), float32(float64(b[j])-mean*factor)
	}
	for at := p.c; at < p.wide; at += p.c {
		copy(p.factor[at:], p.factor[:p.c])
		copy(p.shift[at:], p.shift[:p.c])
	}
}

func (p *groupNorm) applyParts(lo, hi int) {
	from, _ := p.part(lo)
	_, to := p.part(hi - 1)
	for n := p.wide; from < to; from += n {
		n = min(n, to-from)
		y := p.y[from : from+n]
		vec.Mul(y, p.x[from:from+n], p.factor)
		vec.Add(y, y, p.shift)
		if p.acts {
			vec.Activate(p.act, y, y)
		}
	}
}
