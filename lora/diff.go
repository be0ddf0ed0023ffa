package lora

import (
	"fmt"
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/tensor"
)

// TensorDiff is the difference of one tensor between two adapters.
type TensorDiff struct {
	Key string
	// OnlyIn is 1 or 2 if the other adapter lacks the tensor.
	OnlyIn int
	// Shapes are set if they differ; then nothing else is compared.
	Shapes [2][]int
	// DTypes are the types of the two tensors.
	DTypes [2]tensor.DType

	MaxAbs float64 // largest |a-b|; NaN if exactly one of the two is NaN
	MaxRel float64 // MaxAbs over the largest |a|; 0 if both are all zero
	At     []int   // index of the element with MaxAbs
	A, B   float64 // its values
	Differ int     // number of elements that are not equal
}

// Equal reports whether the tensors hold the same numbers.
func (d TensorDiff) Equal() bool { return d.OnlyIn == 0 && d.Shapes[0] == nil && d.Differ == 0 }

// String formats the difference as one line of text.
func (d TensorDiff) String() string {
	switch {
	case d.OnlyIn != 0:
		return fmt.Sprintf("%s: only in %s", d.Key, []string{"", "the first", "the second"}[d.OnlyIn])
	case d.Shapes[0] != nil:
		return fmt.Sprintf("%s: shapes %v and %v", d.Key, d.Shapes[0], d.Shapes[1])
	case d.Differ == 0:
		return d.Key + ": equal"
	}
	return fmt.Sprintf("%s: max |a-b| %.3g, relative %.3g, at %v: %v and %v, %d elements differ", d.Key, d.MaxAbs, d.MaxRel, d.At, d.A, d.B, d.Differ)
}

// Diff compares two adapters tensor by tensor, sorted by key.
func Diff(a, b *Adapter) ([]TensorDiff, error) {
	keys := slices.Concat(a.names, b.names)
	slices.Sort(keys)
	var diffs []TensorDiff
	for _, key := range slices.Compact(keys) {
		d := TensorDiff{Key: key}
		x, inA := a.tensors[key]
		y, inB := b.tensors[key]
		switch {
		case !inB:
			d.OnlyIn = 1
		case !inA:
			d.OnlyIn = 2
		default:
			if err := reading(func() error { return d.compare(x, y) }); err != nil {
				return nil, fmt.Errorf("lora: compare %s: %w", key, err)
			}
		}
		diffs = append(diffs, d)
	}
	return diffs, nil
}

func (d *TensorDiff) compare(a, b tensor.Tensor) error {
	d.DTypes = [2]tensor.DType{a.DType, b.DType}
	if !slices.Equal(a.Shape, b.Shape) {
		d.Shapes = [2][]int{a.Shape, b.Shape}
		return nil
	}
	x, err := a.Float32s()
	if err != nil {
		return err
	}
	y, err := b.Float32s()
	if err != nil {
		return err
	}
	at, largest := -1, 0.0
	for i := range x {
		u, v := float64(x[i]), float64(y[i])
		largest = max(largest, math.Abs(u)) // NaN stays
		if u == v || math.IsNaN(u) && math.IsNaN(v) {
			continue
		}
		d.Differ++
		diff := math.Abs(u - v)
		if at < 0 || diff > d.MaxAbs || math.IsNaN(diff) && !math.IsNaN(d.MaxAbs) {
			at, d.MaxAbs, d.A, d.B = i, diff, u, v
		}
	}
	if at >= 0 {
		d.At = unravel(at, a.Shape)
		d.MaxRel = d.MaxAbs / largest
	}
	return nil
}

// unravel turns the number of an element into its index.
func unravel(n int, shape []int) []int {
	index := make([]int, len(shape))
	for i := len(shape) - 1; i >= 0; i-- {
		index[i] = n % shape[i]
		n /= shape[i]
	}
	return index
}
