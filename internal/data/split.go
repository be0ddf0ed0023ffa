package data

import (
	"math"
	"slices"
)

// Split divides the rows of a dataset into two: a fraction of them, at least one, drawn by seed, and the rest. Both keep
// the order of the rows and share their memory with d.
func (d *Dataset) Split(fraction float64, seed uint64) (rest, part *Dataset, err error) {
	n := d.Len()
	k := max(1, int(math.Round(fraction*float64(n))))
	switch {
	case d.batch > 0:
		return nil, nil, problem(ErrOption, "recorded batches are taken as they are, expected no eval_fraction")
	case k >= n:
		return nil, nil, problem(ErrOption, "eval_fraction %v of %d rows leaves none to train on", fraction, n)
	}
	draw := permutation(n, derived(seed, 0, splittingDraw, 0), 0)
	drawn := make([]bool, n)
	for i := range k {
		drawn[draw(i)] = true
	}
	rows := [2][]int{make([]int, 0, n-k), make([]int, 0, k)}
	for r := range n {
		to := &rows[0]
		if drawn[r] {
			to = &rows[1]
		}
		*to = append(*to, d.stored(r))
	}
	rest, part = d.view(rows[0]), d.view(rows[1])
	rest.stats.Truncated, rest.stats.Dropped, rest.stats.Empty = d.stats.Truncated, d.stats.Dropped, d.stats.Empty
	rest.sources = d.sources
	return rest, part, nil
}

// view returns a dataset of stored rows, in ascending order.
func (d *Dataset) view(rows []int) *Dataset {
	v := &Dataset{store: d.store, starts: d.starts, texts: d.texts, whole: d.whole, types: d.types, labels: d.labels, pick: rows}
	for _, first := range d.entries {
		at, _ := slices.BinarySearch(rows, d.storedEnd(first))
		v.entries = append(v.entries, at)
	}
	v.stats.Files, v.stats.Rows = d.stats.Files, len(rows)
	for r := range rows {
		v.stats.Tokens += v.Length(r)
		v.stats.LossTokens += v.Targets(r)
		for t := rows[r] * d.texts; t < (rows[r]+1)*d.texts; t++ {
			v.stats.Longest = max(v.stats.Longest, d.starts[t+1]-d.starts[t])
		}
	}
	return v
}

// stored returns the number of a row among the stored rows.
func (d *Dataset) stored(r int) int {
	if d.pick == nil {
		return r
	}
	return d.pick[r]
}

// storedEnd returns the number of the first stored row that is not before row r, which may be the end.
func (d *Dataset) storedEnd(r int) int {
	if r < d.Len() {
		return d.stored(r)
	}
	return math.MaxInt
}
