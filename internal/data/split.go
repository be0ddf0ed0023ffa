package data

import (
	"math"
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
	drawn := make(rowSet, n/64+1)
	for i := range k {
		drawn.set(draw(i))
	}
	rows := [2]ascending{}
	for r := range n {
		to := &rows[0]
		if drawn.has(r) {
			to = &rows[1]
		}
		to.append(d.stored(r))
	}
	rest, part = d.view(&rows[0]), d.view(&rows[1])
	rest.stats.Truncated, rest.stats.Dropped, rest.stats.Empty = d.stats.Truncated, d.stats.Dropped, d.stats.Empty
	rest.sources = d.sources
	return rest, part, nil
}

// view returns a dataset of stored rows, in ascending order.
func (d *Dataset) view(rows *ascending) *Dataset {
	v := &Dataset{store: d.store, starts: d.starts, texts: d.texts, whole: d.whole, types: d.types, labels: d.labels, pick: rows}
	for _, first := range d.entries {
		v.entries = append(v.entries, rows.find(d.storedEnd(first)))
	}
	v.stats.Files, v.stats.Rows = d.stats.Files, rows.len()
	for r := range rows.len() {
		v.stats.Tokens += v.Length(r)
		v.stats.LossTokens += v.Targets(r)
		for t := rows.at(r) * d.texts; t < (rows.at(r)+1)*d.texts; t++ {
			v.stats.Longest = max(v.stats.Longest, d.starts.at(t+1)-d.starts.at(t))
		}
	}
	return v
}

// stored returns the number of a row among the stored rows.
func (d *Dataset) stored(r int) int {
	if d.pick == nil {
		return r
	}
	return d.pick.at(r)
}

// storedEnd returns the number of the first stored row that is not before row r, which may be the end.
func (d *Dataset) storedEnd(r int) int {
	if r < d.Len() {
		return d.stored(r)
	}
	return math.MaxInt
}

// rowSet is a set of rows, a bit for each.
type rowSet []uint64

func (s rowSet) set(row int)      { s[row/64] |= 1 << (row % 64) }
func (s rowSet) has(row int) bool { return s[row/64]&(1<<(row%64)) != 0 }
