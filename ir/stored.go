package ir

import (
	"strings"

	"github.com/lorafuse/lorafuse/tensor"
)

// Formulas are in f32. How many bits a value takes where it lies is a property
// of its place: a device rounds it once when it writes it there, and computes
// with what it reads. The planner decides, graphs know nothing of it.

// Storable reports whether values of type t can be kept as elements of type d:
// f32 in one of the 16-bit floats.
func Storable(t Type, d tensor.DType) bool {
	return t.DType == tensor.F32 && (d == tensor.BF16 || d == tensor.F16)
}

// stored is the element type in memory.
func stored(t Type, store tensor.DType) tensor.DType {
	if store == tensor.Invalid {
		return t.DType
	}
	return store
}

// Stored is the element type in memory.
func (r Ref) Stored() tensor.DType { return stored(r.Type, r.Store) }

// Bytes is the size in memory for the run-time values dims.
func (r Ref) Bytes(dims []int) int { return r.Stored().Bytes(r.Type.Shape.Elements(dims)) }

// Stored is the element type in memory.
func (a Arg) Stored() tensor.DType { return stored(a.Type, a.Store) }

// Bytes is the size in memory for the run-time values dims.
func (a Arg) Bytes(dims []int) int { return a.Stored().Bytes(a.Type.Shape.Elements(dims)) }

// as writes a stored type behind the type of a value.
func as(store tensor.DType) string {
	if store == tensor.Invalid {
		return ""
	}
	return " as " + strings.ToLower(store.String())
}

// Narrowed finds a value that is stored in another type than it is computed
// in, for devices that have no such values.
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

// storedTypes are the types of values with their elements as in memory.
func storedTypes(refs []Ref) []Type {
	ts := refTypes(refs)
	for i, r := range refs {
		ts[i].DType = r.Stored()
	}
	return ts
}
