package ir

import (
	"strings"

	"github.com/lorafuse/lorafuse/tensor"
)

// Formulas are in f32. The number of bits per element in memory is a property of the location: a device rounds a value
// once when it stores it, and computes with the rounded value. The planner decides; graphs do not know about it.

// Storable reports whether values of type t can be stored as elements of type d: f32 as one of the 16-bit floats.
func Storable(t Type, d tensor.DType) bool {
	return t.DType == tensor.F32 && (d == tensor.BF16 || d == tensor.F16)
}

// stored returns the element type in memory.
func stored(t Type, store tensor.DType) tensor.DType {
	if store == tensor.Invalid {
		return t.DType
	}
	return store
}

// Stored returns the element type in memory.
func (r Ref) Stored() tensor.DType { return stored(r.Type, r.Store) }

// Bytes returns the size in memory for the run-time values dims.
func (r Ref) Bytes(dims []int) int { return r.Stored().Bytes(r.Type.Shape.Elements(dims)) }

// Stored returns the element type in memory.
func (a Arg) Stored() tensor.DType { return stored(a.Type, a.Store) }

// Bytes returns the size in memory for the run-time values dims.
func (a Arg) Bytes(dims []int) int { return a.Stored().Bytes(a.Type.Shape.Elements(dims)) }

// as returns the suffix that shows a stored type in the text of a value.
func as(store tensor.DType) string {
	if store == tensor.Invalid {
		return ""
	}
	return " as " + strings.ToLower(store.String())
}

// Narrowed returns a value whose stored type differs from the type in which it is computed, if there is one. Devices
// without such values refuse the program.
func (p *Program) Narrowed() (Ref, bool) {
	for i := range p.Launches {
		for _, refs := range [][]Ref{p.Launches[i].In, p.Launches[i].Out} {
			for _, r := range refs {
				if r.Store != tensor.Invalid {
					return r, true
				}
			}
		}
	}
	return Ref{}, false
}

// storedTypes returns the types of values with their stored element types.
func storedTypes(refs []Ref) []Type {
	ts := refTypes(refs)
	for i, r := range refs {
		ts[i].DType = r.Stored()
	}
	return ts
}
