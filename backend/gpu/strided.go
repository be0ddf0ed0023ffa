package gpu

import "github.com/lorafuse/lorafuse/internal/ir"

// maxOperands is the most operands that a kernel walks over with strides.
const maxOperands = 3

// strided is a walk over the elements of a shape, with an offset in every operand, for the strided kernels of
// element.cuh.
type strided struct {
	rank     int
	dims     [ir.MaxRank]int
	operands int
	strides  [maxOperands][ir.MaxRank]int // in elements of each operand
}

// strideNames holds the parameter names of each operand's strides.
type strideNames [maxOperands][16]string

var (
	copyStrides  = strideNames{numbered("t"), numbered("s")}
	pairStrides  = strideNames{numbered("x"), numbered("y")}
	whereStrides = strideNames{numbered("c"), numbered("x"), numbered("y")}
)

// over returns a walk over the shape of v.
func (r *Run) over(v ir.Ref) strided {
	s := strided{rank: v.Type.Rank()}
	for i := range s.rank {
		s.dims[i] = r.axis(v, i)
	}
	return s
}

// count returns the number of elements.
func (s *strided) count() int {
	n := 1
	for _, d := range s.dims[:s.rank] {
		n *= d
	}
	return n
}

// contiguous adds an operand with the contiguous strides of the shape.
func (s *strided) contiguous() {
	step := 1
	for i := s.rank - 1; i >= 0; i-- {
		s.strides[s.operands][i] = step
		step *= s.dims[i]
	}
	s.operands++
}

// repeated adds v, broadcast to the shape along axes of size one and missing outer axes.
func (s *strided) repeated(r *Run, v ir.Ref) {
	off, step := s.rank-v.Type.Rank(), 1
	s.strides[s.operands] = [ir.MaxRank]int{}
	for i := v.Type.Rank() - 1; i >= 0; i-- {
		if n := r.axis(v, i); n != 1 {
			s.strides[s.operands][off+i] = step
			step *= n
		}
	}
	s.operands++
}

// join removes axes of size one, and merges two axes if all operands walk over both with one stride.
func (s *strided) join() {
	to := 0
	for i := range s.rank {
		if s.dims[i] == 1 {
			continue
		}
		if to > 0 && s.follows(to-1, i) {
			s.dims[to-1] *= s.dims[i]
			for o := range s.operands {
				s.strides[o][to-1] = s.strides[o][i]
			}
			continue
		}
		s.dims[to] = s.dims[i]
		for o := range s.operands {
			s.strides[o][to] = s.strides[o][i]
		}
		to++
	}
	s.rank = to
}

func (s *strided) follows(outer, inner int) bool {
	for o := range s.operands {
		if s.strides[o][outer] != s.strides[o][inner]*s.dims[inner] {
			return false
		}
	}
	return true
}

// axes converts the shape to the form of the kernels: an outermost axis, whose size the kernels do not need, and three
// more.
func (s *strided) axes() (place [ir.MaxRank]int, d1, d2, d3 int) {
	d := [ir.MaxRank]int{1, 1, 1, 1}
	for i := range s.rank {
		place[i] = i
		if i > 0 {
			place[i] = ir.MaxRank - s.rank + i
		}
		d[place[i]] = s.dims[i]
	}
	return place, d[1], d[2], d[3]
}

// walk adds the arguments n, d1, d2, d3 and the strides of all operands.
func (k *Kernel) walk(s *strided, names *strideNames) {
	place, d1, d2, d3 := s.axes()
	k.long("n", s.count()).int("d1", d1).int("d2", d2).int("d3", d3)
	for o := range s.operands {
		var t [ir.MaxRank]int
		for i := range s.rank {
			t[place[i]] = s.strides[o][i]
		}
		for i, x := range t {
			k.long(names[o][i], x)
		}
	}
}
