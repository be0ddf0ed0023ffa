// Package inspect examines the bytes of tensors: statistics of their values,
// checks of every byte of a model, and comparison of two tensors.
//
// Tensors are read once, in chunks, on all cores, so memory does not grow with
// the model. Results do not depend on the number of cores.
package inspect

import (
	"encoding/json"
	"errors"
	"math"
)

// Errors that this package wraps.
var (
	// ErrDType reports elements that cannot be compared as numbers.
	ErrDType = errors.New("cannot be compared as numbers")
	// ErrShape reports a comparison of tensors with different shapes.
	ErrShape = errors.New("the shapes differ")
)

// Values is the result of [Scan] for one tensor.
type Values struct {
	Elements int64
	// NaN, Inf and Zero count elements that are not a number, infinite of
	// either sign, and zero of either sign. An element of C64 is NaN if one of
	// its parts is, infinite if one of them is and none is NaN, and zero if
	// both are.
	NaN, Inf, Zero int64
	// NotBool counts BOOL values other than 0 and 1.
	NotBool int64
	// Min and Max are the smallest and the largest finite element, exact even
	// for 64-bit integers. They are empty if there is none, and for C64, which
	// has no order.
	Min, Max json.Number
	// Mean and Std are the mean of the finite elements and their standard
	// deviation without Bessel's correction, as in numpy. Both are NaN if Min is
	// empty; Std is also NaN if the sum of squares overflows a float64.
	Mean, Std float64
	// Histogram counts the finite elements; nil if Min is empty.
	Histogram *Histogram
	// CRC32C is the checksum of the bytes (Castagnoli), if Options requests it.
	CRC32C uint32
	// Err is the reason why the tensor could not be read; the other fields are
	// then zero.
	Err error
}

// Constant reports whether all elements are the same finite number.
func (v *Values) Constant() bool {
	return v.Min != "" && v.Min == v.Max && v.NaN+v.Inf == 0
}

// part holds the statistics of some of a tensor's elements.
type part struct {
	nan, inf, zero int64
	bools          int64 // BOOL values other than 0 and 1
	moments        moments
	floats         spread[int64]  // for all types except I64 and U64
	wholes         spread[uint64] // for I64 and U64, as keys
	bytes          int64
	crc            uint32
}

// add merges the part of the following elements into p.
func (p *part) add(o *part) {
	p.nan += o.nan
	p.inf += o.inf
	p.zero += o.zero
	p.bools += o.bools
	p.moments.add(o.moments)
	p.floats.add(&o.floats)
	p.wholes.add(&o.wholes)
	p.crc = combineCRC(p.crc, o.crc, o.bytes)
	p.bytes += o.bytes
}

// moments holds the count, the mean and the sum of squared deviations from the
// mean of some numbers.
type moments struct {
	n        int64
	mean, m2 float64
}

// add merges the moments of another set. Source: Chan, Golub and LeVeque,
// "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances",
// 1979, equation 2.1.
func (m *moments) add(o moments) {
	if o.n == 0 {
		return
	}
	if m.n == 0 {
		*m = o
		return
	}
	n := float64(m.n + o.n)
	d := o.mean - m.mean
	share := float64(o.n) / n
	m.m2 += o.m2 + d*d*float64(m.n)*share
	m.mean += d * share
	m.n += o.n
}

func (m *moments) std() float64 {
	if m.n == 0 || math.IsInf(m.m2, 0) {
		return math.NaN()
	}
	return math.Sqrt(m.m2 / float64(m.n))
}
