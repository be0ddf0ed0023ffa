package gpu

import "github.com/lorafuse/lorafuse/ir"

// Run is what a program runs on: where its values lie, and how large they are.
type Run struct {
	Arena   Pointer
	Scratch Pointer // Plan.Scratch bytes
	Trap    Pointer // where kernels report what is wrong
	Args    []Pointer
	Dims    []int // of the program's bounded dimensions
}

// at is where a value lies.
func (r *Run) at(v ir.Ref) Pointer {
	if v.Space == ir.SpaceArg {
		return r.Args[v.Index] + Pointer(v.Offset)
	}
	return r.Arena + Pointer(v.Offset)
}

// count is the number of elements of a value.
func (r *Run) count(v ir.Ref) int { return v.Type.Shape.Elements(r.Dims) }

// axis is the size of axis i of a value.
func (r *Run) axis(v ir.Ref, i int) int { return v.Type.Shape[i].Resolve(r.Dims) }

// matrix gives the rows and columns of a value whose outer axes are joined.
func (r *Run) matrix(v ir.Ref) (rows, cols int) {
	cols = v.Type.Last().Resolve(r.Dims)
	if cols == 0 {
		return 0, 0
	}
	return r.count(v) / cols, cols
}

// around gives the sizes before, of and after an axis.
func (r *Run) around(v ir.Ref, axis int) (outer, n, inner int) {
	outer, n, inner = 1, r.axis(v, axis), 1
	for i := range v.Type.Shape {
		switch {
		case i < axis:
			outer *= r.axis(v, i)
		case i > axis:
			inner *= r.axis(v, i)
		}
	}
	return outer, n, inner
}

// same tells whether two values lie at the same place.
func (r *Run) same(a, b ir.Ref) bool { return r.at(a) == r.at(b) }
