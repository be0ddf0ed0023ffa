// Package inspect looks into the bytes of tensors: statistics of their values,
// checks of every byte of a model, and how two tensors differ.
//
// Tensors pass through in chunks, each once, on all cores: memory does not grow
// with the model. Results do not depend on the number of cores.
package inspect

import (
	"encoding/json"
	"errors"
	"math"
)

// Errors that this package wraps.
var (
	// ErrDType: the elements are no numbers that could be compared.
	ErrDType = errors.New("cannot be compared as numbers")
	// ErrShape: tensors of different shapes have no elements to compare.
	ErrShape = errors.New("the shapes differ")
)

// Values is what [Scan] finds out about the elements of one tensor.
type Values struct {
	Elements int64
	// NaN, Inf and Zero count elements: those that are not a number, infinite
	// of either sign, and zero of either sign. An element of C64 is NaN where
	// one of its parts is, infinite where one of them is and none is NaN, zero
	// where both are.
	NaN, Inf, Zero int64
	// NotBool counts values of BOOL that are neither 0 nor 1.
	NotBool int64
	// Min and Max are the smallest and the largest finite element, exact also
	// for 64-bit integers. They are empty where there is none, and for C64,
	// which has no order.
	Min, Max json.Number
	// Mean and Std are the mean of the finite elements and their standard
	// deviation, the root of the mean square (as numpy has it, without Bessel's
	// correction). They are NaN where Min is empty, and Std where a float64 does
	// not hold the sum of squares.
	Mean, Std float64
	// Histogram counts the finite elements; nil where Min is empty.
	Histogram *Histogram
	// CRC32C is the checksum of the bytes (Castagnoli), where Options asked for
	// it.
	CRC32C uint32
	// Err is why the tensor could not be read; nothing else is set then.
	Err error
}

// Constant reports whether all elements are the same finite number.
func (v *Values) Constant() bool {
	return v.Min != "" && v.Min == v.Max && v.NaN+v.Inf == 0
}

// part is what is known of some of a tensor's elements.
type part struct {
	nan, inf, zero int64
	bools          int64 // BOOL values that are neither 0 nor 1
	moments        moments
	floats         spread[int64]  // of all types but the two below
	wholes         spread[uint64] // of I64 and U64, as keys
	bytes          int64
	crc            uint32
}

// add takes in the part that follows.
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

// moments are the number, the mean and the sum of squared differences from the
// mean of some numbers.
type moments struct {
	n        int64
	mean, m2 float64
}

// add joins the moments of two sets. Source: Chan, Golub and LeVeque,
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
