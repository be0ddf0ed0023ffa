package data

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
)

// Dataset holds tokenised rows: all ids in one slice, and one bit per token
// for the loss. It does not change once it is loaded.
type Dataset struct {
	ids    []int32
	loss   []uint64   // bit i%64 of word i/64: token i carries loss
	starts []int      // text t is ids[starts[t]:starts[t+1]]
	texts  int        // of a row
	whole  bool       // rows are read whole, and count once
	types  []int32    // of all tokens; nil where all are of type 0
	labels *rowLabels // of rows; nil where they have none
	batch  int        // rows of a recorded batch; 0 where rows are free
	stats  Stats

	numbers []float32 // of texts, see SetNumbers
	named   string
}

// Stats are the counts of a data set.
type Stats struct {
	Files      int
	Rows       int
	Tokens     int
	LossTokens int // what the loss is the mean of: targets after the shift, or rows that are read whole
	Longest    int // tokens of the longest text
	Truncated  int // rows cut to max_length
	Dropped    int // rows left out as longer than max_length
	Empty      int // texts left out for having nothing to predict
}

// NewDataset holds the rows, in their order. The error names a row whose
// labels are neither the row's ids nor Ignore.
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

func newDataset() *Dataset { return &Dataset{starts: []int{0}, texts: 1} }

// Len is the number of rows.
func (d *Dataset) Len() int { return (len(d.starts) - 1) / d.texts }

// Texts is the number of texts of each row: one, but for rows of pairs.
func (d *Dataset) Texts() int { return d.texts }

// Classes are the names of the classes of labelled rows, in the order of their ids; nil
// for all other rows.
func (d *Dataset) Classes() []string {
	if d.labels == nil {
		return nil
	}
	return slices.Clone(d.labels.classes)
}

// span is the range of the tokens of row r.
func (d *Dataset) span(r int) (start, end int) {
	return d.starts[r*d.texts], d.starts[(r+1)*d.texts]
}

// Stats are the counts.
func (d *Dataset) Stats() Stats { return d.stats }

// Recorded is the number of batches and the rows of each in a file that was
// recorded batch by batch; 0, 0 for any other.
func (d *Dataset) Recorded() (batches, rows int) {
	if d.batch == 0 {
		return 0, 0
	}
	return d.Len() / d.batch, d.batch
}

// Length is the number of tokens of row r.
func (d *Dataset) Length(r int) int {
	start, end := d.span(r)
	return end - start
}

// Row is a copy of row r.
func (d *Dataset) Row(r int) Row {
	start, end := d.span(r)
	row := Row{IDs: append([]int32(nil), d.ids[start:end]...), Labels: make([]int32, end-start)}
	for i := range row.Labels {
		row.Labels[i] = d.label(start + i)
	}
	return row
}

// Targets is the number of tokens of row r that carry loss after the shift by
// one: the first token of a row is never predicted. A row that is read whole is one.
func (d *Dataset) Targets(r int) int {
	if d.whole {
		return 1
	}
	start, end := d.span(r)
	return d.countLoss(start+1, end)
}

// Digest is a SHA-256 over all rows and their labels. A resumed run compares
// it, to be sure that it goes on with the same data.
func (d *Dataset) Digest() [sha256.Size]byte {
	h := sha256.New()
	var buf []byte
	flush := func() { _, _ = h.Write(buf); buf = buf[:0] } // a hash never fails
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

// label is the label of token i of all rows.
func (d *Dataset) label(i int) int32 {
	if d.loss[i/64]>>(i%64)&1 == 0 {
		return Ignore
	}
	return d.ids[i]
}

// appendWhole adds a row of texts that is read whole.
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

// appendTyped adds a row of one text that is read whole, and the types of its tokens.
func (d *Dataset) appendTyped(ids, types []int32) {
	d.appendWhole([][]int32{ids})
	if d.types == nil && slices.ContainsFunc(types, func(t int32) bool { return t != 0 }) {
		d.types = make([]int32, len(d.ids)-len(ids), cap(d.ids))
	}
	if d.types != nil {
		d.types = append(d.types, types...)
	}
}

// appendText adds a text whose tokens carry no loss.
func (d *Dataset) appendText(ids []int32) {
	d.ids = append(d.ids, ids...)
	d.starts = append(d.starts, len(d.ids))
	for words := (len(d.ids) + 63) / 64; len(d.loss) < words; {
		d.loss = append(d.loss, 0)
	}
}

// append adds a row whose tokens in the spans carry loss.
func (d *Dataset) append(ids []int32, loss []Span) {
	base := len(d.ids)
	d.appendText(ids)
	d.mark(base, loss)
	d.stats.Rows++
	d.stats.Tokens += len(ids)
	d.stats.Longest = max(d.stats.Longest, len(ids))
	d.stats.LossTokens += d.Targets(d.Len() - 1)
}

// mark has the tokens in the spans behind token base carry loss.
func (d *Dataset) mark(base int, loss []Span) {
	for _, s := range loss {
		for i := base + s.Start; i < base+s.End; i++ {
			d.loss[i/64] |= 1 << (i % 64)
		}
	}
}

// SetNumbers has batches hold a number for each text of their rows, under a name; x are
// those of all texts. It is called before there are batches.
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

// labelSpans are the ranges of tokens that the labels of a row give loss to.
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
