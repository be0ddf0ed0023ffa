package testdevice

import (
	"cmp"
	"math"
	"slices"
)

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

// Rows is the deviation of results in so many rows. With routed it is that of nine
// rows in ten, the best: rounding may send a token to another expert than the right
// one, where two are scored all but alike, and all of its row is off then.
func Rows(got, want []float32, n int, routed bool) float64 {
	rows, width := make([]Deviation, n), len(want)/n
	for i, w := range want {
		rows[i/width].Add(float64(got[i]), float64(w))
	}
	if routed {
		slices.SortFunc(rows, func(a, b Deviation) int { return cmp.Compare(a.Relative(), b.Relative()) })
		rows = rows[:len(rows)-len(rows)/10]
	}
	var all Deviation
	for _, r := range rows {
		all.wrong, all.size = all.wrong+r.wrong, all.size+r.size
	}
	return all.Relative()
}
