package testdevice

import (
	"cmp"
	"math"
	"slices"
)

// Deviation accumulates the error of results: the root mean square of the differences, relative to that of the correct
// values. scripts/make_rounding_goldens.py uses the same measure for PyTorch's error.
type Deviation struct{ wrong, size float64 }

// Add counts a result.
func (d *Deviation) Add(got, want float64) {
	d.wrong += (got - want) * (got - want)
	d.size += want * want
}

// Join counts the results of another deviation too.
func (d *Deviation) Join(o Deviation) { d.wrong, d.size = d.wrong+o.wrong, d.size+o.size }

// Relative returns the deviation of the values added so far.
func (d *Deviation) Relative() float64 { return math.Sqrt(d.wrong / d.size) }

// Rows returns the deviation of n rows of results. With routed, it uses the best nine tenths of the rows: if two
// experts have almost equal scores, rounding may route a token to the wrong one, which changes its whole row.
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
		all.Join(r)
	}
	return all.Relative()
}
