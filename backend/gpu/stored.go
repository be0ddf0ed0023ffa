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

// checkStored returns an error if the kernels of a launch do not take its operands as they are stored.
func checkStored(l *ir.Launch) error {
	var types []ir.Type
	for _, v := range l.In {
		types = append(types, v.Type)
	}
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

// narrow returns a bit for each value, the first one the lowest: whether it is stored as bf16.
func narrow(values ...ir.Ref) (bits int) {
	for i, v := range values {
		bits |= bit(v.Stored() == tensor.BF16) << i
	}
	return bits
}
