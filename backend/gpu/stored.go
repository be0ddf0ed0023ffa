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

// narrow returns a bit for each value, the first one the lowest: whether it is computed in f32 and stored as bf16.
func narrow(values ...ir.Ref) (bits int) {
	for i, v := range values {
		bits |= bit(v.Store == tensor.BF16) << i
	}
	return bits
}

// form returns how the name of a kernel ends that takes operands of these types, the result of narrow.
func form(bits int) string {
	if bits == 0 {
		return "_f32"
	}
	return "_stored"
}

// stored adds the argument that kernels have whose names end in _stored.
func (k *Kernel) stored(bits int) *Kernel {
	if bits != 0 {
		k.int("stored", bits)
	}
	return k
}

// storesAll is for kernels that take all of their f32 operands as either type.
func storesAll(any, []ir.Type, ir.Place) bool { return true }

// storesFirst is for kernels that take their results and the first n operands as either type.
func storesFirst(n int) func(any, []ir.Type, ir.Place) bool {
	return func(_ any, _ []ir.Type, at ir.Place) bool { return at.Out || at.Index < n }
}

// storesUnary excludes functions whose kernels take f32 only.
func storesUnary(attr any, _ []ir.Type, _ ir.Place) bool {
	fn := attr.(ir.UnaryAttr).Fn
	return fn != ir.Sin && fn != ir.Cos && fn != ir.IsFinite
}
