package data

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestBatch holds the values of a batch of two documents.
func TestBatch(t *testing.T) {
	d, err := NewDataset([]Row{
		{[]int32{5, 6, 7}, []int32{Ignore, 6, 7}},
		{[]int32{8, 9}, []int32{8, 9}},
		{[]int32{3, 4}, []int32{Ignore, 4}},
	})
	require.NoError(t, err)
	l, err := Sequential(d, 2)
	require.NoError(t, err)
	b, err := l.Batch(0, 0)
	require.NoError(t, err)
	want := []Array{
		{Name: "tokens", Ints: []int32{5, 6, 7, 8, 9}},
		{Name: "labels", Ints: []int32{6, 7, Ignore, 9, Ignore}},
		{Name: "positions", Ints: []int32{0, 1, 2, 0, 1}},
		{Name: "lo", Ints: []int32{0, 0, 0, 3, 3}},
		{Name: "hi", Ints: []int32{1, 2, 3, 4, 5}},
		{Name: "end", Ints: []int32{3, 3, 3, 5, 5}},
	}
	assert.Equal(t, want, b.Arrays())
	assert.Equal(t, []int32{0, 3, 5}, b.Starts)
	assert.Equal(t, []int{2, 3, 3}, []int{b.Rows(), b.Longest(), b.LossTokens})
	assert.Equal(t, 2, l.StepsPerEpoch())
	assert.Equal(t, 5, l.MaxTokens())
	assert.Equal(t, 5, l.Tokens(0))

	require.NoError(t, l.Fill(b, 1, 0), "memory is used again")
	assert.Equal(t, []int32{3, 4}, b.Tokens())
	assert.Equal(t, []int32{4, Ignore}, b.Labels())
	assert.Equal(t, []int32{0, 0}, b.KeyStart())
	assert.Equal(t, 1, b.LossTokens)
	assert.Equal(t, []int{1, 2}, []int{b.Rows(), b.Longest()})
	require.NoError(t, l.Fill(b, 0, 0))
	assert.Equal(t, want, b.Arrays())
	assert.Zero(t, testing.AllocsPerRun(10, func() { _ = l.Fill(b, 0, 0) }))
}

func TestSteps(t *testing.T) {
	d := uniform(t, 11, 2)
	l, err := NewLoader(d, LoaderConfig{BatchSize: 2, Accumulation: 2})
	require.NoError(t, err)
	assert.Equal(t, 3, l.StepsPerEpoch())
	assert.Equal(t, []int{2, 2, 2, 2}, []int{l.Micros(0), l.Micros(1), l.Micros(2), l.Micros(3)})
	last, err := l.Batch(2, 1)
	require.NoError(t, err)
	assert.Equal(t, 1, last.Rows(), "11 = 4 + 4 + 2 + 1")
	assert.Equal(t, []int{0, 0, 0, 1, 1}, []int{l.Epoch(0), l.Epoch(1), l.Epoch(2), l.Epoch(3), l.Epoch(4)})

	l, err = NewLoader(d, LoaderConfig{BatchSize: 2, Accumulation: 2, DropLast: true})
	require.NoError(t, err)
	assert.Equal(t, 2, l.StepsPerEpoch())
	assert.Equal(t, 4, l.MaxTokens())
}

// uniform returns a dataset of n rows of equal length; row r consists of the id r.
func uniform(t require.TestingT, n, length int) *Dataset {
	rows := make([]Row, n)
	for r := range rows {
		rows[r].IDs = slices.Repeat([]int32{int32(r)}, length)
		rows[r].Labels = rows[r].IDs
	}
	d, err := NewDataset(rows)
	require.NoError(t, err)
	return d
}

// TestShuffle: each epoch is another order of all rows, another seed another
// order; both are pinned, since a change of the order breaks every resume.
func TestShuffle(t *testing.T) {
	epoch := func(seed uint64, e int) (rows []int32) {
		l, err := NewLoader(uniform(t, 10, 2), LoaderConfig{BatchSize: 1, Shuffle: true, Seed: seed})
		require.NoError(t, err)
		for s := range l.StepsPerEpoch() {
			b, err := l.Batch(e*l.StepsPerEpoch()+s, 0)
			require.NoError(t, err)
			rows = append(rows, b.Tokens()[0])
		}
		return rows
	}
	assert.NotEqual(t, epoch(42, 0), epoch(42, 1))
	assert.NotEqual(t, epoch(42, 0), epoch(43, 0))
	assert.Equal(t, []int32{6, 4, 9, 3, 1, 7, 5, 2, 8, 0}, epoch(42, 0))
}

func TestBucketing(t *testing.T) {
	rows := make([]Row, 42) // a last batch of two
	for r := range rows {
		rows[r].IDs = slices.Repeat([]int32{int32(r)}, 1+(r*7)%20)
		rows[r].Labels = rows[r].IDs
	}
	d, err := NewDataset(rows)
	require.NoError(t, err)
	l, err := NewLoader(d, LoaderConfig{BatchSize: 4, LengthBucketing: true, Shuffle: true, Seed: 1})
	require.NoError(t, err)
	var sizes []int
	for step := range l.StepsPerEpoch() {
		b, err := l.Batch(step, 0)
		require.NoError(t, err)
		var lengths []int
		for _, p := range b.Positions() {
			if p == 0 {
				lengths = append(lengths, 0)
			}
			lengths[len(lengths)-1]++
		}
		assert.LessOrEqual(t, slices.Max(lengths)-slices.Min(lengths), 2, "lengths of a batch: %v", lengths)
		sizes = append(sizes, len(b.Tokens()))
	}
	assert.Equal(t, 20+20+19+19, l.MaxTokens())
	assert.False(t, slices.IsSorted(sizes) || slices.IsSortedFunc(sizes, func(a, b int) int { return b - a }), "batches come in random order: %v", sizes)
}

// loaderGen draws a data set and a configuration for it.
func loaderGen(t *rapid.T) (*Dataset, LoaderConfig) {
	d, err := NewDataset(rowsGen(30, 12).Draw(t, "rows"))
	require.NoError(t, err)
	c := LoaderConfig{
		BatchSize:    rapid.IntRange(1, 5).Draw(t, "batch"),
		Accumulation: rapid.IntRange(1, 4).Draw(t, "accumulation"),
		Seed:         rapid.Uint64().Draw(t, "seed"),
		Shuffle:      rapid.Bool().Draw(t, "shuffle"),
	}
	switch rapid.IntRange(0, 2).Draw(t, "kind") {
	case 1:
		c.LengthBucketing = true
	case 2:
		c.Packing, c.MaxLength = true, rapid.IntRange(12, 40).Draw(t, "max_length")
	}
	return d, c
}

// TestEpochProperties: in every epoch each token comes once with its label,
// no token sees another document, the bounds hold, and steps count right.
func TestEpochProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, c := loaderGen(t)
		l, err := NewLoader(d, c)
		require.NoError(t, err)
		docOf := map[int32]int{} // ids are unique
		for r := range d.Len() {
			for _, id := range d.Row(r).IDs {
				docOf[id] = r
			}
		}
		epoch := rapid.IntRange(0, 3).Draw(t, "epoch")
		seen := map[int32]bool{}
		loss := 0
		for s := range l.StepsPerEpoch() {
			step := epoch*l.StepsPerEpoch() + s
			require.Equal(t, epoch, l.Epoch(step))
			stepLoss, stepTokens := 0, 0
			for micro := range l.Micros(step) {
				b, err := l.Batch(step, micro)
				require.NoError(t, err)
				require.LessOrEqual(t, len(b.Tokens()), l.MaxTokens())
				require.LessOrEqual(t, b.Rows(), l.MaxDocuments())
				checkBatch(t, d, b, docOf)
				for _, id := range b.Tokens() {
					require.False(t, seen[id], "token %d twice", id)
					seen[id] = true
				}
				stepLoss += b.LossTokens
				stepTokens += len(b.Tokens())
			}
			require.Equal(t, l.LossTokens(step), stepLoss)
			require.Equal(t, l.Tokens(step), stepTokens)
			loss += stepLoss
		}
		require.Len(t, seen, d.Stats().Tokens)
		require.Equal(t, d.Stats().LossTokens, loss)
	})
}

func checkBatch(t *rapid.T, d *Dataset, b *Batch, docOf map[int32]int) {
	documents, loss := 0, 0
	for i, id := range b.Tokens() {
		row := d.Row(docOf[id])
		p := int(b.Positions()[i])
		require.Equal(t, row.IDs[p], id)
		require.Equal(t, int32(i-p), b.KeyStart()[i], "attention begins with the document")
		require.Equal(t, int32(i+1), b.KeyEnd()[i], "and ends with the token")
		want := int32(Ignore)
		if p+1 < len(row.IDs) {
			want = row.Labels[p+1]
		}
		require.Equal(t, want, b.Labels()[i])
		if want != Ignore {
			loss++
		}
		if p == 0 {
			documents++
		}
	}
	require.Equal(t, documents, b.Rows())
	require.Equal(t, loss, b.LossTokens)
}

// TestResume: a fresh loader asked for any step gives what a loader that went
// through all steps gave there.
func TestResume(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, c := loaderGen(t)
		c.DropLast = rapid.Bool().Draw(t, "drop_last")
		walked, err := NewLoader(d, c)
		if err != nil {
			require.ErrorIs(t, err, ErrEmpty)
			return
		}
		type place struct{ step, micro int }
		var places []place
		batches := map[place]*Batch{}
		for step := range 2*walked.StepsPerEpoch() + 1 {
			for micro := range walked.Micros(step) {
				p := place{step, micro}
				places = append(places, p)
				batches[p], err = walked.Batch(step, micro)
				require.NoError(t, err)
			}
		}
		resumed, err := NewLoader(d, c)
		require.NoError(t, err)
		for range 5 {
			p := rapid.SampledFrom(places).Draw(t, "place")
			b, err := resumed.Batch(p.step, p.micro)
			require.NoError(t, err)
			require.Equal(t, batches[p], b)
		}
	})
}

// TestArrays: a batch can have arrays of other names and types in addition to the text arrays.
func TestArrays(t *testing.T) {
	var b Batch
	b.Add([]int32{4, 5}, []int32{5, Ignore})
	b.SetInts("types", []int32{0, 258})
	b.SetFloats("times", []float32{1})
	for name, want := range map[string][]byte{"tokens": {4, 0, 0, 0, 5, 0, 0, 0}, "types": {0, 0, 0, 0, 2, 1, 0, 0}, "times": {0, 0, 0x80, 0x3f}} {
		got, ok := b.Array(name)
		require.True(t, ok)
		require.Equal(t, want, got, name)
	}
	_, ok := b.Array("pixels")
	require.False(t, ok)
	require.Equal(t, 1, b.LossTokens)
	b.Reset()
	for _, a := range b.Arrays() {
		require.Empty(t, a.Bytes(), a.Name)
	}
	require.Zero(t, b.Rows()+b.Longest()+b.LossTokens)
}

func TestDropLast(t *testing.T) {
	l, err := NewLoader(uniform(t, 11, 2), LoaderConfig{BatchSize: 2, Accumulation: 2, DropLast: true, Shuffle: true, Seed: 3})
	require.NoError(t, err)
	left := map[int32]bool{}
	for epoch := range 6 {
		seen := map[int32]bool{}
		for s := range 2 {
			for micro := range 2 {
				b, err := l.Batch(epoch*2+s, micro)
				require.NoError(t, err)
				require.Equal(t, 2, b.Rows())
				for _, id := range b.Tokens() {
					seen[id] = true
				}
			}
		}
		require.Len(t, seen, 8)
		for r := range int32(11) {
			if !seen[r] {
				left[r] = true
			}
		}
	}
	assert.Greater(t, len(left), 3, "other rows are left out in each epoch")
}

func TestLoaderErrors(t *testing.T) {
	d := uniform(t, 3, 4)
	recorded := uniform(t, 6, 4)
	recorded.batch = 2
	for text, c := range map[string]struct {
		set *Dataset
		cfg LoaderConfig
		is  error
	}{
		"found batch_size 0":                 {d, LoaderConfig{}, ErrOption},
		"gradient_accumulation_steps -1":     {d, LoaderConfig{BatchSize: 1, Accumulation: -1}, ErrOption},
		"no rows":                            {newDataset(), LoaderConfig{BatchSize: 1}, ErrEmpty},
		"3 rows do not fill a step of":       {d, LoaderConfig{BatchSize: 4, DropLast: true}, ErrEmpty},
		"found max_length 3 for packing":     {d, LoaderConfig{BatchSize: 1, Packing: true, MaxLength: 3}, ErrOption},
		"either packing or length_bucketing": {d, LoaderConfig{BatchSize: 1, Packing: true, MaxLength: 9, LengthBucketing: true}, ErrOption},
		"neither packing":                    {recorded, LoaderConfig{BatchSize: 2, Packing: true, MaxLength: 9}, ErrOption},
		"expected a product of 2":            {recorded, LoaderConfig{BatchSize: 4}, ErrOption},
	} {
		_, err := NewLoader(c.set, c.cfg)
		require.ErrorIs(t, err, c.is, text)
		assert.ErrorContains(t, err, text)
	}
	l, err := Sequential(d, 2)
	require.NoError(t, err)
	for _, at := range [][2]int{{-1, 0}, {0, -1}, {0, 1}, {1, 1}} {
		_, err := l.Batch(at[0], at[1])
		assert.ErrorIs(t, err, ErrOption)
	}
}
