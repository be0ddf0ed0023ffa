package testdevice

import "math"

// Deviation is how far results are from what is right: the root of the mean
// square of the differences, in parts of that of what is right. It is what
// scripts/make_rounding_goldens.py takes for PyTorch's error.
type Deviation struct{ wrong, size float64 }

// Add counts a result.
func (d *Deviation) Add(got, want float64) {
	d.wrong += (got - want) * (got - want)
	d.size += want * want
}

// Relative is the deviation of what was counted.
func (d *Deviation) Relative() float64 { return math.Sqrt(d.wrong / d.size) }
