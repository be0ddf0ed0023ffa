package gpu

import (
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// Run holds the addresses and sizes of a program's values in one run.
type Run struct {
	Arena   Pointer
	Scratch Pointer // Plan.Scratch bytes
	Trap    Pointer // where kernels report errors
	Table   Pointer // the memory of the plan's tables
	Words   []byte  // its contents, of Plan.TableBytes
	// Address returns the address that kernels read from tables; nil if Pointers are addresses. Accesses then
	// lists the memory of all Plan.Addresses addresses.
	Address  func(Pointer) uint64
	Accesses []Access
	Args     []Pointer
	Dims     []int // of the program's bounded dimensions

	held Pointer // the part of the scratch memory that keeps its contents
}

// Accept checks how many arguments of a run there are and the sizes of the dimensions,
// which it copies. Take checks the arguments.
func (r *Run) Accept(p *ir.Program, args backend.Args) error {
	if len(args.Buffers) != len(p.Args) {
		return fmt.Errorf("%d buffers, expected %d", len(args.Buffers), len(p.Args))
	}
	if len(args.Dims) != len(p.Bounds) {
		return fmt.Errorf("%d dimensions, expected %d", len(args.Dims), len(p.Bounds))
	}
	for v := 1; v < len(p.Bounds); v++ {
		if n := args.Dims[v]; n < 1 || n > p.Bounds[v].Max {
			return fmt.Errorf("%s = %d, expected 1 to %d", p.Bounds[v].Name, n, p.Bounds[v].Max)
		}
	}
	copy(r.Dims, args.Dims)
	return nil
}

// Take binds a buffer of the given size to argument i of the program, for the dimensions that Accept has copied.
func (r *Run) Take(p *ir.Program, i int, at Pointer, bytes int, readOnly bool) error {
	a := &p.Args[i]
	if a.Written && readOnly {
		return fmt.Errorf("the program writes %q, which is an imported buffer", a.Name)
	}
	if n := a.Bytes(r.Dims); n > bytes {
		return fmt.Errorf("argument %q: %d bytes of %v in a buffer of %d", a.Name, n, a.Type, bytes)
	}
	r.Args[i] = at
	return nil
}

// at returns the address of a value.
func (r *Run) at(v ir.Ref) Pointer {
	switch v.Space {
	case ir.SpaceArg:
		return r.Args[v.Index] + Pointer(v.Offset)
	case spaceHeld:
		return r.held + Pointer(v.Offset)
	}
	return r.Arena + Pointer(v.Offset)
}

// list records an address of a table for Accesses, under a number, and returns it as kernels read it.
func (r *Run) list(number int, at Pointer, written bool) uint64 {
	if r.Address == nil {
		return uint64(at)
	}
	r.Accesses[number] = Access{At: at, Written: uint32(bit(written))}
	if at == 0 {
		return 0
	}
	return r.Address(at)
}

// count returns the number of elements of a value.
func (r *Run) count(v ir.Ref) int { return v.Type.Shape.Elements(r.Dims) }

// axis returns the size of axis i of a value.
func (r *Run) axis(v ir.Ref, i int) int { return v.Type.Shape[i].Resolve(r.Dims) }

// matrix returns the rows and columns of a value whose outer axes are joined.
func (r *Run) matrix(v ir.Ref) (rows, cols int) {
	cols = v.Type.Last().Resolve(r.Dims)
	if cols == 0 {
		return 0, 0
	}
	return r.count(v) / cols, cols
}

// around returns the product of the sizes before an axis, its size, and the product of the sizes after it.
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

// same reports whether two values have the same address.
func (r *Run) same(a, b ir.Ref) bool { return r.at(a) == r.at(b) }
