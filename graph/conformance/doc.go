// Package conformance is the conformance suite of all backends. One table of
// cases, a few rows for each operation, drives every mode:
//
//   - value: the device against the float64 reference of package ir
//   - grad: gradients on the device and by the reference, against finite
//     differences of the reference
//   - composite: the device's own kernels against the decompositions
//   - fuse: rewritten graphs against graphs as they were written, and patterns
//     that must not be rewritten
//   - plan: reused memory against memory of its own for every value, bit for bit
//   - chaos: the same under random delays and with memory full of NaN
//   - device: what the interfaces of package backend promise
//   - contents, empty, finite: indices that are wrong, values without elements,
//     infinities and NaN
//
// A backend passes with three lines:
//
//	func TestConformance(t *testing.T) {
//		conformance.RunAll(t, func() (backend.Device, error) { return backend.Open("mine", backend.Options{}) })
//	}
//
// A new operation needs a row in one of the tables (cases_*.go).
package conformance
