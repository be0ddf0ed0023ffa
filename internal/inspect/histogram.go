package inspect

import (
	"encoding/json"
	"math"

	"github.com/lorafuse/lorafuse/safetensors"
)

// Histogram counts elements in at most 20 bins of equal width, from the bin of
// the smallest to that of the largest element. The width is a power of two and
// the edges are multiples of it, so that counts are exact and chunks of a
// tensor can be counted separately. Bin i counts elements x with Edges[i] ≤ x <
// Edges[i+1]. If all elements are equal, the only bin has equal edges.
type Histogram struct {
	Edges  []json.Number
	Counts []int64
}

const mostBins = 20

// spread is the range and distribution of some numbers on a grid of step 2^exp:
// the place of x is floor(x/2^exp). T is int64 for floats; 64-bit integers are
// represented by keys, uint64 numbers in the same order.
type spread[T int64 | uint64] struct {
	n      int64 // number of elements; if 0, the other fields are unused
	lo, hi limit
	exp    int
	base   T   // place of the first bin
	bins   int // in use
	counts [mostBins]int64
}

// limit is the smallest or the largest number: f for floats, key for 64-bit
// integers.
type limit struct {
	f   float64
	key uint64
}

// less compares both fields, of which one is always 0.
func (a limit) less(b limit) bool { return a.f < b.f || a.key < b.key }

// add merges another spread into s.
func (s *spread[T]) add(o *spread[T]) {
	if o.n == 0 {
		return
	}
	if s.n == 0 {
		*s = *o
		return
	}
	s.n += o.n
	if o.lo.less(s.lo) {
		s.lo = o.lo
	}
	if s.hi.less(o.hi) {
		s.hi = o.hi
	}
	other := *o
	s.coarsen(other.exp - s.exp)
	other.coarsen(s.exp - other.exp)
	for {
		first, last := min(s.base, other.base), max(s.last(), other.last())
		if last-first < mostBins {
			break
		}
		s.coarsen(1)
		other.coarsen(1)
	}
	var counts [mostBins]int64
	first, last := min(s.base, other.base), max(s.last(), other.last())
	for i := range s.bins {
		counts[s.base-first+T(i)] += s.counts[i]
	}
	for i := range other.bins {
		counts[other.base-first+T(i)] += other.counts[i]
	}
	s.base, s.bins, s.counts = first, int(last-first)+1, counts
}

func (s *spread[T]) last() T { return s.base + T(s.bins-1) }

// coarsen multiplies the step by 2^k, if k > 0.
func (s *spread[T]) coarsen(k int) {
	if k <= 0 {
		return
	}
	s.exp += k
	k = min(k, 63) // only the sign of a place is left
	first := s.base >> k
	last := s.last() >> k
	var counts [mostBins]int64
	for i := range s.bins {
		counts[(s.base+T(i))>>k-first] += s.counts[i]
	}
	s.base, s.bins, s.counts = first, int(last-first)+1, counts
}

// finest returns the exponent of the finest grid for a type: integers need no
// fractions, and the scale of a grid must be a float64.
func finest(d safetensors.DType) int {
	if isInteger(d) {
		return 0
	}
	return -1022
}

// gridOf returns the finest grid on which the range from lo to hi has at most
// mostBins bins. The grid is no finer than finest, nor than the resolution of
// float64 at the larger of the two.
func gridOf(lo, hi float64, finest int) spread[int64] {
	s := spread[int64]{lo: limit{f: lo}, hi: limit{f: hi}, exp: finest}
	if most := max(math.Abs(lo), math.Abs(hi)); most > 0 {
		_, top := math.Frexp(most)
		s.exp = max(top-53, finest)
	}
	if lo < hi {
		_, wide := math.Frexp(hi/2 - lo/2) // the range itself may overflow a float64
		s.exp = max(wide-5, s.exp)         // at least 32 bins
	}
	for {
		scale := s.scale()
		s.base = gridPlace(lo, scale)
		if bins := gridPlace(hi, scale) - s.base + 1; bins <= mostBins {
			s.bins = int(bins)
			return s
		}
		s.exp++
	}
}

// gridPlace returns the place of x on a grid. The product is exact unless it
// underflows.
func gridPlace(x, scale float64) int64 {
	at := x * scale
	if at == 0 && x < 0 {
		return -1
	}
	return int64(math.Floor(at))
}

// scale returns 1/2^exp.
func (s *spread[T]) scale() float64 { return math.Ldexp(1, -s.exp) }

// keyGridOf returns a grid like gridOf, for keys.
func keyGridOf(lo, hi uint64) spread[uint64] {
	s := spread[uint64]{lo: limit{key: lo}, hi: limit{key: hi}}
	for hi>>s.exp-lo>>s.exp >= mostBins {
		s.exp++
	}
	s.base = lo >> s.exp
	s.bins = int(hi>>s.exp-s.base) + 1
	return s
}

// histogram returns the spread as a Histogram; number formats an edge.
func (s *spread[T]) histogram(number func(place T, exp int) json.Number, constant json.Number) *Histogram {
	if s.lo == s.hi {
		return &Histogram{Edges: []json.Number{constant, constant}, Counts: []int64{s.n}}
	}
	h := &Histogram{Counts: append([]int64(nil), s.counts[:s.bins]...)}
	for i := range s.bins + 1 {
		h.Edges = append(h.Edges, number(s.base+T(i), s.exp))
	}
	return h
}
