package data

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"slices"
)

// Dataset holds tokenized rows: all ids in one slice, and one loss bit per token. It is immutable once loaded.
type Dataset struct {
	ids    []int32
	loss   []uint64   // bit i%64 of word i/64: token i carries loss
	starts []int      // text t is ids[starts[t]:starts[t+1]]
	texts  int        // texts per row
	whole  bool       // rows of a whole-row task, each counted once
	types  []int32    // of all tokens; nil if all are type 0
	labels *rowLabels // labels of rows; nil if they have none
	batch  int        // rows per recorded batch; 0 without recorded batches
	stats  Stats

	sources []Source // files, in order

	numbers []float32 // one per text, see SetNumbers
	named   string
}

// Stats counts the contents of a dataset.
type Stats struct {
	Files      int
	Rows       int
	Tokens     int
	LossTokens int // divisor of the loss: targets after the shift, or rows of a whole-row task
	Longest    int // tokens of the longest text
	Truncated  int // rows cut to max_length
	Dropped    int // rows dropped because they exceed max_length
	Empty      int // texts dropped because they have nothing to predict
}

func newDataset() *Dataset { return &Dataset{starts: []int{0}, texts: 1} }

// Len returns the number of rows.
func (d *Dataset) Len() int { return (len(d.starts) - 1) / d.texts }

// Texts returns the number of texts per row: one, except for pairs and preferences.
func (d *Dataset) Texts() int { return d.texts }

// Classes returns the class names of labelled rows, in order of their ids; nil for other rows.
func (d *Dataset) Classes() []string {
	if d.labels == nil {
		return nil
	}
	return slices.Clone(d.labels.classes)
}

// span returns the token range of row r.
func (d *Dataset) span(r int) (start, end int) {
	return d.starts[r*d.texts], d.starts[(r+1)*d.texts]
}

// Stats returns the counts.
func (d *Dataset) Stats() Stats { return d.stats }

// Recorded returns the number of batches, and of rows per batch, of a file of recorded batches; 0, 0 for other files.
func (d *Dataset) Recorded() (batches, rows int) {
	if d.batch == 0 {
		return 0, 0
	}
	return d.Len() / d.batch, d.batch
}

// Length returns the number of tokens of row r.
func (d *Dataset) Length(r int) int {
	start, end := d.span(r)
	return end - start
}

// Row returns a copy of row r.
func (d *Dataset) Row(r int) Row {
	start, end := d.span(r)
	row := Row{IDs: append([]int32(nil), d.ids[start:end]...), Labels: make([]int32, end-start)}
	for i := range row.Labels {
		row.Labels[i] = d.label(start + i)
	}
	return row
}

// Targets returns the number of tokens of row r that carry loss after the shift by one; the first token is never
// predicted. For a whole-row task it is 1.
func (d *Dataset) Targets(r int) int {
	if d.whole {
		return 1
	}
	start, end := d.span(r)
	return d.countLoss(start+1, end)
}

// Digest returns a SHA-256 of all rows and labels. A resumed run compares it to verify that the data is the same.
func (d *Dataset) Digest() [sha256.Size]byte {
	h := sha256.New()
	var buf []byte
	flush := func() { _, _ = h.Write(buf); buf = buf[:0] } // hash writes never fail
	buf = binary.LittleEndian.AppendUint64(buf, uint64(d.batch))
	if d.whole {
		buf = binary.LittleEndian.AppendUint64(buf, uint64(d.texts))
	}
	for _, start := range d.starts {
		buf = binary.LittleEndian.AppendUint64(buf, uint64(start))
	}
	flush()
	for chunk := range slices.Chunk(d.ids, 1<<14) {
		for _, id := range chunk {
			buf = binary.LittleEndian.AppendUint32(buf, uint32(id))
		}
		flush()
	}
	for _, word := range d.loss {
		buf = binary.LittleEndian.AppendUint64(buf, word)
	}
	flush()
	if d.labels != nil {
		buf = d.labels.append(buf)
		for _, t := range d.types {
			buf = binary.LittleEndian.AppendUint32(buf, uint32(t))
		}
		flush()
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// label returns the label of token i of the dataset.
func (d *Dataset) label(i int) int32 {
	if d.loss[i/64]>>(i%64)&1 == 0 {
		return Ignore
	}
	return d.ids[i]
}

// appendWhole appends a row of a whole-row task.
func (d *Dataset) appendWhole(texts [][]int32) {
	d.texts, d.whole = len(texts), true
	for _, ids := range texts {
		d.appendText(ids)
		d.stats.Tokens += len(ids)
		d.stats.Longest = max(d.stats.Longest, len(ids))
	}
	d.stats.Rows++
	d.stats.LossTokens++
}

// appendTyped appends a row of one text of a whole-row task, with the types of its tokens.
func (d *Dataset) appendTyped(ids, types []int32) {
	d.appendWhole([][]int32{ids})
	if d.types == nil && slices.ContainsFunc(types, func(t int32) bool { return t != 0 }) {
		d.types = make([]int32, len(d.ids)-len(ids), cap(d.ids))
	}
	if d.types != nil {
		d.types = append(d.types, types...)
	}
}

// appendText appends a text whose tokens carry no loss.
func (d *Dataset) appendText(ids []int32) {
	d.ids = append(d.ids, ids...)
	d.starts = append(d.starts, len(d.ids))
	for words := (len(d.ids) + 63) / 64; len(d.loss) < words; {
		d.loss = append(d.loss, 0)
	}
}

// append appends a row; tokens in the spans carry loss.
func (d *Dataset) append(ids []int32, loss []Span) {
	base := len(d.ids)
	d.appendText(ids)
	d.setLossBits(base, loss)
	d.stats.Rows++
	d.stats.Tokens += len(ids)
	d.stats.Longest = max(d.stats.Longest, len(ids))
	d.stats.LossTokens += d.Targets(d.Len() - 1)
}

// setLossBits sets the loss bits of spans, relative to token base.
func (d *Dataset) setLossBits(base int, loss []Span) {
	for _, s := range loss {
		for i := base + s.Start; i < base+s.End; i++ {
			d.loss[i/64] |= 1 << (i % 64)
		}
	}
}

// SetNumbers adds an array called name to batches, with a number for each text; x holds the numbers of all texts. Call
// it before creating batches.
func (d *Dataset) SetNumbers(name string, x []float32) error {
	if len(x) != len(d.starts)-1 {
		return problem(ErrOption, "%d numbers called %s for %d texts", len(x), name, len(d.starts)-1)
	}
	d.numbers, d.named = x, name
	return nil
}

// countLoss counts the tokens in [from, to) that carry loss.
func (d *Dataset) countLoss(from, to int) int {
	count := 0
	for from < to {
		word := d.loss[from/64] >> (from % 64)
		if n := to - from; n < 64-from%64 {
			word &= 1<<n - 1
		}
		count += bits.OnesCount64(word)
		from += 64 - from%64
	}
	return count
}

// labelSpans returns the ranges of tokens to which the labels of a row assign loss.
func labelSpans(row Row) ([]Span, error) {
	if len(row.Labels) != len(row.IDs) {
		return nil, problem(ErrFormat, "%d labels for %d ids, expected as many", len(row.Labels), len(row.IDs))
	}
	var spans []Span
	for i, label := range row.Labels {
		switch {
		case label == Ignore:
		case label != row.IDs[i]:
			return nil, problem(ErrFormat, "label %d of token %d, whose id is %d: expected the id or %d (labels are not shifted)",
				label, i, row.IDs[i], Ignore)
		case len(spans) > 0 && spans[len(spans)-1].End == i:
			spans[len(spans)-1].End++
		default:
			spans = append(spans, Span{i, i + 1})
		}
	}
	return spans, nil
}
