package data

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// NewDataset returns a dataset of rows, in order. The error names a row whose labels are neither its ids nor Ignore.
func NewDataset(rows []Row) (*Dataset, error) {
	d := newDataset()
	for i, row := range rows {
		spans, err := labelSpans(row)
		if err != nil {
			return nil, at(fmt.Sprintf("row %d", i), 0, err)
		}
		d.append(row.IDs, spans)
	}
	return d, nil
}

func TestNewDataset(t *testing.T) {
	rows := []Row{
		{[]int32{5, 6, 7}, []int32{Ignore, 6, 7}},
		{[]int32{8}, []int32{8}},
		{[]int32{9, 9, 9, 9}, []int32{9, Ignore, Ignore, 9}},
	}
	d, err := NewDataset(rows)
	require.NoError(t, err)
	assert.Equal(t, rows, rowsOf(d))
	assert.Equal(t, Stats{Rows: 3, Tokens: 8, LossTokens: 3, Longest: 4}, d.Stats())
	assert.Equal(t, []int{2, 0, 1}, []int{d.Targets(0), d.Targets(1), d.Targets(2)})

	_, err = NewDataset([]Row{{[]int32{1, 2, 3}, []int32{2, 3, Ignore}}})
	require.ErrorIs(t, err, ErrFormat)
	assert.EqualError(t, err, "row 0: label 2 of token 0, whose id is 1: expected the id or -100 (labels are not shifted)")

	_, err = NewDataset([]Row{{[]int32{1, 2}, []int32{1}}})
	assert.EqualError(t, err, "row 0: 1 labels for 2 ids, expected as many")
}

// TestDigest: any change of the training data changes the digest.
func TestDigest(t *testing.T) {
	digest := func(rows ...Row) [32]byte {
		d, err := NewDataset(rows)
		require.NoError(t, err)
		return d.Digest()
	}
	row := func(loss int, ids ...int32) Row { return Row{ids, masked(loss, ids[loss:]...)} }
	base := digest(row(0, 1, 2), row(0, 3))
	assert.Equal(t, base, digest(row(0, 1, 2), row(0, 3)))
	assert.NotEqual(t, base, digest(row(0, 1), row(0, 2, 3)), "where rows end")
	assert.NotEqual(t, base, digest(row(1, 1, 2), row(0, 3)), "labels")
	assert.NotEqual(t, base, digest(row(0, 1, 4), row(0, 3)), "ids")
	assert.NotEqual(t, base, digest(row(0, 3), row(0, 1, 2)), "order")
}

// rowsGen draws rows with random lengths and labels.
func rowsGen(most, longest int) *rapid.Generator[[]Row] {
	return rapid.Custom(func(t *rapid.T) []Row {
		rows := make([]Row, rapid.IntRange(1, most).Draw(t, "rows"))
		next := int32(0)
		for r := range rows {
			for range rapid.IntRange(1, longest).Draw(t, "length") {
				label := next
				if rapid.Bool().Draw(t, "ignore") {
					label = Ignore
				}
				rows[r].IDs = append(rows[r].IDs, next)
				rows[r].Labels = append(rows[r].Labels, label)
				next++
			}
		}
		return rows
	})
}

// TestRoundTrip: a dataset returns the rows it was built from, with the same counts as a plain loop.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := rowsGen(8, 90).Draw(t, "rows")
		d, err := NewDataset(rows)
		require.NoError(t, err)
		require.Equal(t, rows, rowsOf(d))
		for r, row := range rows {
			want := 0
			for _, label := range row.Labels[1:] {
				if label != Ignore {
					want++
				}
			}
			require.Equal(t, want, d.Targets(r))
			require.Equal(t, len(row.IDs), d.Length(r))
		}
	})
}
