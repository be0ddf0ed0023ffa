package gpu

import (
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// Stores reports whether the kernels of an operation read or write an f32 operand that is stored as bf16. Any
// combination of such operands is allowed.
func Stores(op ir.Op, attr any, in []ir.Type, at ir.Place) bool {
	f := families[op]
	return f.stores != nil && f.stores(attr, in, at)
}

// checkStored returns an error if an operand of a launch is stored as a type that the kernels do not take.
func checkStored(l *ir.Launch) error {
	types := inputTypes(l)
	check := func(v ir.Ref, at ir.Place) error {
		if v.Store == tensor.Invalid || v.Store == tensor.BF16 && Stores(l.Op, l.Attr, types, at) {
			return nil
		}
		return fmt.Errorf("%w: %v of %v is stored in another type than it is computed in", backend.ErrUnsupported, v, l.Op)
	}
	for i, v := range l.In {
		if err := check(v, ir.Place{Index: i}); err != nil {
			return err
		}
	}
	for i, v := range l.Out {
		if err := check(v, ir.Place{Out: true, Index: i}); err != nil {
			return err
		}
	}
	return nil
}

// inputTypes returns the types of a launch's inputs.
func inputTypes(l *ir.Launch) (types []ir.Type) {
	for _, v := range l.In {
		types = append(types, v.Type)
	}
	return types
}
