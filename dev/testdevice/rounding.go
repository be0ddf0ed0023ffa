package testdevice

import (
	"math"
	"testing"
)

// Rounding compares errors at precision bf16 with the errors of PyTorch's autocast to bfloat16. The error of one
// case is chance in part, and differs between processors.
type Rounding struct {
	sum float64 // of the logarithms of the quotients
	n   int
}

// Add requires the error of a case, ours, to be below most times theirs.
func (r *Rounding) Add(t testing.TB, ours, theirs, most float64) {
	t.Helper()
	t.Logf("error %.2g, PyTorch's %.2g", ours, theirs)
	if !(ours < most*theirs) {
		t.Fatalf("found error %v, expected less than %v times PyTorch's", ours, most)
	}
	r.sum, r.n = r.sum+math.Log(ours/theirs), r.n+1
}

// Check requires the errors of all cases together, the geometric mean of the quotients, to be at most PyTorch's.
func (r *Rounding) Check(t testing.TB) {
	t.Helper()
	mean := math.Exp(r.sum / float64(r.n))
	t.Logf("error of all cases: %.2g of PyTorch's", mean)
	if !(mean <= 1) {
		t.Fatalf("found %v of PyTorch's error, expected at most 1", mean)
	}
}
