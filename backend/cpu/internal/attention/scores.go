package attention

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/vec"
)

// Bias is added to scores: for head h, query i and key j the element at Head·h + Query·i + Key·j or, if Relative is
// positive, at Head·h + Relative + min(max(j-i, -Relative), Relative). Nil Data means no bias.
type Bias struct {
	Data                       []float32
	Head, Query, Key, Relative int
}

// adjusts reports whether scores are more than products.
func (s *Spec) adjusts() bool { return s.SoftCap > 0 || s.Bias.Data != nil }

// adjust caps the scores of query i and head h for the keys from k on, and adds the bias. If slope is not nil, it
// gets the derivative of the cap.
func (s *Spec) adjust(row, slope []float32, h, i, k int) {
	if s.SoftCap > 0 {
		vec.Scale(row, 1/s.SoftCap, row)
		vec.Apply(vec.Tanh, row, row)
		for j := range slope {
			slope[j] = 1 - row[j]*row[j]
		}
		vec.Scale(row, s.SoftCap, row)
	}
	b := &s.Bias
	switch {
	case b.Data == nil:
	case b.Relative > 0 || b.Key == 0 && b.Query == 0:
		for j := range row {
			apart := min(max(k+j-i, -b.Relative), b.Relative)
			row[j] += b.Data[b.Head*h+b.Relative+apart]
		}
	case b.Key == 1:
		vec.Add(row, row, b.Data[b.Head*h+b.Query*i+k:])
	default:
		v := b.Data[b.Head*h+b.Query*i]
		for j := range row {
			row[j] += v
		}
	}
}

// checkBias finds a bias that is too small.
func (s *Spec) checkBias() error {
	b := &s.Bias
	if b.Data == nil || s.queries() == 0 || s.Keys == 0 {
		return nil
	}
	want := b.Head*(s.QHeads-1) + b.Query*(s.queries()-1) + b.Key*(s.Keys-1) + 2*b.Relative + 1
	if len(b.Data) < want {
		return fmt.Errorf("%w: a bias of %d elements, want %d", ErrShape, len(b.Data), want)
	}
	return nil
}
