// Package conformance is the test suite that every backend must pass. Tables of cases, a few for each operation, drive
// every mode:
//
//   - value: results against the float64 reference of package ir
//   - grad: gradients on the device and in the reference, against finite
//     differences of the reference
//   - composite: kernels of the device against decompositions
//   - fuse: rewritten graphs against the original ones, and patterns
//     that must not be rewritten
//   - plan: reused memory against separate memory for every value, bit for bit
//   - chaos: the same under random delays and with memory full of NaN
//   - device: contracts of the interfaces of package backend
//   - contents, empty, finite: invalid indices, values without elements,
//     infinities and NaN
//
// A backend calls [RunAll] from a test:
//
//	func TestConformance(t *testing.T) {
//		conformance.RunAll(t, func() (backend.Device, error) { return backend.Open("mine", backend.Options{}) })
//	}
//
// A new operation needs a case in one of the tables (cases_*.go).
package conformance
