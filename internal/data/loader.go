package data

import (
	"fmt"
	"iter"
	"math"
	"slices"
)

// LoaderConfig configures how rows become batches.
type LoaderConfig struct {
	BatchSize    int    // rows per micro-batch
	Accumulation int    // micro-batches per optimizer step; 0 is 1
	Seed         uint64 // seed of all orders
	Shuffle      bool   // a new order in each epoch
	DropLast     bool   // skip the last, incomplete step of an epoch
	// LengthBucketing builds micro-batches from rows of similar length.
	LengthBucketing bool
	// Packing fills rows of MaxLength tokens with several documents; a batch then consists of such rows. MaxLength
	// applies only to packing.
	Packing   bool
	MaxLength int
	// Mix holds the weights of the entries that the dataset was loaded from. They are shares of the rows of an epoch; an
	// epoch has as many rows as the dataset. If empty, each row comes once.
	Mix []float64
}

// Loader returns the micro-batches of a run. It has no position: a batch is a function of the configuration, the
// dataset and the step, so a resumed run just asks for the next step. It is safe for concurrent use.
//
// An epoch is one pass over all rows; its last step, and the last micro-batch, may be smaller. Steps are counted across
// epochs. For a dataset of recorded batches, step s has batch s mod batches, in file order.
type Loader struct {
	set   *Dataset
	cfg   LoaderConfig
	order order
	packs *packs // documents of each row, if packed
	rows  int    // rows per epoch
	mixed bool   // a row may come several times in an epoch
	steps int    // steps per epoch
}

// maxStep is the maximum number of rows per step: more than any dataset has, and small enough to avoid overflow.
const maxStep = min(1<<40, math.MaxInt)

// NewLoader checks the configuration against the dataset. If rows are packed, they are packed once for all epochs, so
// that every epoch has the same number of steps.
func NewLoader(d *Dataset, c LoaderConfig) (*Loader, error) {
	if c.Accumulation == 0 {
		c.Accumulation = 1
	}
	if c.BatchSize < 1 || c.Accumulation < 1 {
		return nil, problem(ErrOption, "found batch_size %d and gradient_accumulation_steps %d, expected ≥ 1", c.BatchSize, c.Accumulation)
	}
	if c.BatchSize > maxStep/c.Accumulation {
		return nil, problem(ErrOption, "found batch_size %d × gradient_accumulation_steps %d, expected a product of %d at most", c.BatchSize, c.Accumulation, maxStep)
	}
	if d.Len() == 0 {
		return nil, problem(ErrEmpty, "no rows")
	}
	l := &Loader{set: d, cfg: c, order: fileOrder{}, rows: d.Len()}
	if _, rows := d.Recorded(); rows > 0 {
		if err := l.checkRecorded(rows); err != nil {
			return nil, err
		}
	} else if err := l.arrange(); err != nil {
		return nil, err
	}
	perStep := c.BatchSize * c.Accumulation
	l.steps = l.rows / perStep
	if !c.DropLast && l.rows%perStep > 0 {
		l.steps++
	}
	if l.steps == 0 {
		return nil, problem(ErrEmpty, "%d rows do not fill a step of batch_size %d × gradient_accumulation_steps %d, and drop_last leaves them out",
			l.rows, c.BatchSize, c.Accumulation)
	}
	return l, nil
}

// Sequential returns a loader of the rows in file order, for evaluation: steps 0 to StepsPerEpoch, with one micro-batch
// each.
func Sequential(d *Dataset, batchSize int) (*Loader, error) {
	if _, rows := d.Recorded(); rows > 0 {
		batchSize = rows
	}
	return NewLoader(d, LoaderConfig{BatchSize: batchSize})
}

// checkRecorded returns an error for options that do not apply to recorded batches.
func (l *Loader) checkRecorded(rows int) error {
	c := l.cfg
	switch {
	case c.Packing || c.LengthBucketing || len(c.Mix) > 0:
		return problem(ErrOption, "recorded batches are taken as they are, expected neither packing, length_bucketing nor mix")
	case c.BatchSize*c.Accumulation != rows:
		return problem(ErrOption, "found batch_size %d × gradient_accumulation_steps %d, expected a product of %d as the recorded batches have it",
			c.BatchSize, c.Accumulation, rows)
	}
	return nil
}

// arrange determines the order of the rows, and packs them if configured.
func (l *Loader) arrange() error {
	c := l.cfg
	if c.Shuffle {
		l.order = shuffled{l.rows, c.Seed}
	}
	if len(c.Mix) > 0 {
		mix, err := newBlend(l.set, c.Mix, l.order, c)
		if err != nil {
			return err
		}
		l.order, l.mixed = mix, true
	}
	if c.Packing {
		if c.LengthBucketing {
			return problem(ErrOption, "packed rows are all of one length, expected either packing or length_bucketing")
		}
		if longest := l.set.stats.Longest; c.MaxLength < longest {
			return problem(ErrOption, "found max_length %d for packing, expected at least the %d tokens of the longest row", c.MaxLength, longest)
		}
		l.packs = newPacks(l.set.Len(), l.packingOrder(), l.set.Length, c.MaxLength)
		l.rows, l.order = l.packs.len(), fileOrder{}
		if c.Shuffle {
			l.order = shuffled{l.rows, c.Seed}
		}
	}
	if c.LengthBucketing {
		l.order = &bucketed{
			order: l.order, rows: l.rows, window: bucketWindow * c.BatchSize * c.Accumulation, batch: c.BatchSize,
			seed: c.Seed, shuffle: c.Shuffle, length: l.set.Length,
		}
	}
	return nil
}

// packingOrder returns the order in which documents are packed: with a mix, the documents of its first epoch.
func (l *Loader) packingOrder() func(i int) int {
	next := func(i int) int { return i }
	if l.cfg.Shuffle {
		next = permutation(l.set.Len(), derived(l.cfg.Seed, 0, packingDraw, 0), 0)
	}
	if !l.mixed {
		return next
	}
	mix := l.order
	return func(i int) int { return mix.at(0, next(i)) }
}

// StepsPerEpoch returns the number of optimizer steps per epoch.
func (l *Loader) StepsPerEpoch() int { return l.steps }

// RowsPerEpoch returns the number of rows per epoch: documents, or packed rows. It includes rows that DropLast skips.
func (l *Loader) RowsPerEpoch() int { return l.rows }

// Epoch returns the epoch of a step.
func (l *Loader) Epoch(step int) int { return step / l.steps }

// Micros returns the number of micro-batches of a step, or 0 for a negative step.
func (l *Loader) Micros(step int) int {
	from, to := l.places(step)
	return (to - from + l.cfg.BatchSize - 1) / l.cfg.BatchSize
}

// LossTokens returns the number of targets of a whole step, the divisor of the summed loss of its micro-batches.
func (l *Loader) LossTokens(step int) int {
	n := 0
	l.documents(step, 0, l.cfg.BatchSize*l.cfg.Accumulation, func(doc int) { n += l.set.Targets(doc) })
	return n
}

// Tokens returns the number of tokens of a whole step.
func (l *Loader) Tokens(step int) int {
	n := 0
	l.documents(step, 0, l.cfg.BatchSize*l.cfg.Accumulation, func(doc int) { n += l.set.Length(doc) })
	return n
}

// Unit returns the unit of Tokens.
func (l *Loader) Unit() string { return "tokens" }

// MaxTokens returns the maximum number of tokens per micro-batch, over all epochs.
func (l *Loader) MaxTokens() int {
	return l.largest(func(row int) int {
		n := 0
		l.eachDocument(row, func(doc int) { n += l.set.Length(doc) })
		return n
	})
}

// MaxDocuments returns the maximum number of documents per micro-batch; each text of a row counts as one.
func (l *Loader) MaxDocuments() int {
	return l.largest(func(row int) int {
		n := 0
		l.eachDocument(row, func(int) { n += l.set.texts })
		return n
	})
}

// largest returns the largest sum of sizes of a micro-batch. In file order the micro-batches are known; in any other
// order, the largest rows may be in the same one.
func (l *Loader) largest(size func(row int) int) int {
	most, micro := 0, 0
	if _, inOrder := l.order.(fileOrder); inOrder {
		perStep := l.cfg.BatchSize * l.cfg.Accumulation
		for row := range l.rows {
			if row%perStep%l.cfg.BatchSize == 0 {
				micro = 0
			}
			micro += size(row)
			most = max(most, micro)
		}
		return most
	}
	repeats := l.mixed && l.packs == nil // the largest row may come several times
	var sizes []int
	keep := min(l.cfg.BatchSize, l.rows)
	for row := range l.rows {
		if repeats {
			most = max(most, size(row)*keep)
			continue
		}
		if sizes = append(sizes, size(row)); len(sizes) >= 2*keep || row+1 == l.rows {
			slices.SortFunc(sizes, func(a, b int) int { return b - a })
			sizes = sizes[:min(keep, len(sizes))]
		}
	}
	for _, n := range sizes {
		most += n
	}
	return most
}

// places returns the range of positions in its epoch that a step covers.
func (l *Loader) places(step int) (from, to int) {
	if step < 0 {
		return 0, 0
	}
	perStep := l.cfg.BatchSize * l.cfg.Accumulation
	from = step % l.steps * perStep
	return from, min(from+perStep, l.rows)
}

// documents calls f with the documents of rows [first, last) of a step.
func (l *Loader) documents(step, first, last int, f func(doc int)) {
	from, to := l.places(step)
	for place := from + first; place < min(from+last, to); place++ {
		l.eachDocument(l.order.at(l.Epoch(step), place), f)
	}
}

// First returns the rows of the first steps, without repetition, grouped by the micro-batch in which they occur first.
// Packed rows are listed as documents.
func (l *Loader) First(steps int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		seen, left := make(rowSet, l.set.Len()/64+1), l.set.Len()
		for step := 0; step < steps && left > 0; step++ {
			for micro := range l.Micros(step) {
				var group []int
				l.documents(step, micro*l.cfg.BatchSize, (micro+1)*l.cfg.BatchSize, func(doc int) {
					if !seen.has(doc) {
						seen.set(doc)
						group = append(group, doc)
					}
				})
				if left -= len(group); len(group) > 0 && !yield(group) {
					return
				}
			}
		}
	}
}

// eachDocument calls f with the documents of a row.
func (l *Loader) eachDocument(row int, f func(doc int)) {
	if l.packs == nil {
		f(row)
		return
	}
	l.packs.each(row, f)
}

// Batch returns micro-batch micro of the step in new memory.
func (l *Loader) Batch(step, micro int) (*Batch, error) {
	b := &Batch{}
	if err := l.Fill(b, step, micro); err != nil {
		return nil, err
	}
	return b, nil
}

// Fill writes micro-batch micro of the step to b, reusing its memory.
func (l *Loader) Fill(b *Batch, step, micro int) error {
	if n := l.Micros(step); micro < 0 || micro >= n {
		return problem(ErrOption, "micro-batch %d of step %d, which has %d", micro, step, n)
	}
	b.Reset()
	l.documents(step, micro*l.cfg.BatchSize, (micro+1)*l.cfg.BatchSize, func(doc int) { b.AddRow(l.set, doc) })
	return l.set.store.err()
}

// Batches yields the first micro-batch of each step of an epoch. Each is valid until the next.
func (l *Loader) Batches() iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		var b Batch
		for step := range l.steps {
			err := l.Fill(&b, step, 0)
			if !yield(&b, err) || err != nil {
				return
			}
		}
	}
}

// String describes an epoch, for a summary.
func (l *Loader) String() string {
	text := fmt.Sprintf("%d rows, %d steps per epoch", l.rows, l.steps)
	if l.packs != nil {
		text = fmt.Sprintf("%d documents packed into %s (%.1f %% full)", l.set.Len(), text,
			100*float64(l.set.stats.Tokens)/(float64(l.rows)*float64(l.cfg.MaxLength)))
	}
	return text
}
