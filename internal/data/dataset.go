package data

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// Dataset holds tokenized rows. It is immutable once loaded. The tokens of a large one are in a file without a name, which
// is closed when the dataset is no longer used.
type Dataset struct {
	store  *store
	starts *ascending // text t has tokens [starts.at(t), starts.at(t+1))
	pick   *ascending // the stored rows of a part of a dataset; nil for all
	texts  int        // texts per row
	whole  bool       // rows of a whole-row task, each counted once
	types  []int32    // of all tokens; nil if all are type 0
	labels *rowLabels // labels of rows; nil if they have none
	batch  int        // rows per recorded batch; 0 without recorded batches
	stats  Stats

	sources []Source // files, in order
	entries []int    // the first row of each entry that was loaded

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

func newDataset() *Dataset { return &Dataset{store: &store{}, starts: newAscending(0), texts: 1} }

// Len returns the number of rows.
func (d *Dataset) Len() int {
	if d.pick != nil {
		return d.pick.len()
	}
	return (d.starts.len() - 1) / d.texts
}

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
	r = d.stored(r)
	return d.starts.at(r * d.texts), d.starts.at((r + 1) * d.texts)
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
	return d.tokens(d.span(r))
}

// tokens returns a copy of tokens.
func (d *Dataset) tokens(start, end int) Row {
	row := Row{IDs: make([]int32, end-start), Labels: make([]int32, end-start)}
	d.store.use(start, end, func(words []int32) {
		for i, w := range words {
			row.IDs[i], row.Labels[i] = idOf(w), labelOf(w)
		}
	})
	return row
}

// Text returns a copy of text t of row r.
func (d *Dataset) Text(r, t int) Row {
	at := d.stored(r)*d.texts + t
	return d.tokens(d.starts.at(at), d.starts.at(at+1))
}

// Targets returns the number of tokens of row r that carry loss after the shift by one; the first token is never
// predicted. For a whole-row task it is 1.
func (d *Dataset) Targets(r int) int {
	if d.whole {
		return 1
	}
	start, end := d.span(r)
	n := 0
	d.store.use(start, end, func(words []int32) {
		for _, w := range words[min(1, len(words)):] {
			if w < 0 {
				n++
			}
		}
	})
	return n
}

// Digest returns a SHA-256 of all rows and labels. A resumed run compares it to verify that the data is the same.
func (d *Dataset) Digest() [sha256.Size]byte {
	h := sha256.New()
	var buf []byte
	flush := func() { _, _ = h.Write(buf); buf = buf[:0] } // hash writes never fail
	write := func(x uint64) {
		if buf = binary.LittleEndian.AppendUint64(buf, x); len(buf) >= 1<<16 {
			flush()
		}
	}
	write(uint64(d.batch))
	if d.whole {
		write(uint64(d.texts))
	}
	for t := range d.starts.len() {
		write(uint64(d.starts.at(t)))
	}
	d.store.each(func(words []int32) {
		for _, w := range words {
			buf = binary.LittleEndian.AppendUint32(buf, uint32(idOf(w)))
		}
		flush()
	})
	var loss uint64 // of 64 tokens, bit by bit
	i := 0
	d.store.each(func(words []int32) {
		for _, w := range words {
			if w < 0 {
				loss |= 1 << (i % 64)
			}
			if i++; i%64 == 0 {
				write(loss)
				loss = 0
			}
		}
	})
	if i%64 > 0 {
		write(loss)
	}
	if d.pick != nil {
		for r := range d.pick.len() {
			write(uint64(d.pick.at(r)))
		}
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

// appendWhole appends a row of a whole-row task. answers has the spans of the answers in each text, or is nil.
func (d *Dataset) appendWhole(texts [][]int32, answers [][]Span) {
	d.texts, d.whole = len(texts), true
	for t, ids := range texts {
		var loss []Span
		if answers != nil {
			loss = answers[t]
		}
		d.appendText(ids, loss...)
		d.stats.Tokens += len(ids)
		d.stats.Longest = max(d.stats.Longest, len(ids))
	}
	d.stats.Rows++
	d.stats.LossTokens++
}

// appendTyped appends a row of one text of a whole-row task, with the types of its tokens.
func (d *Dataset) appendTyped(ids, types []int32) {
	d.appendWhole([][]int32{ids}, nil)
	if d.types == nil && slices.ContainsFunc(types, func(t int32) bool { return t != 0 }) {
		d.types = make([]int32, d.store.len()-len(ids))
	}
	if d.types != nil {
		d.types = append(d.types, types...)
	}
}

// appendText appends a text; tokens in the spans carry loss.
func (d *Dataset) appendText(ids []int32, loss ...Span) {
	base := len(d.store.words)
	d.store.words = append(d.store.words, ids...)
	for _, s := range loss {
		for i := base + s.Start; i < base+s.End; i++ {
			d.store.words[i] |= lossBit
		}
	}
	d.starts.append(d.store.len())
}

// append appends a row; tokens in the spans carry loss.
func (d *Dataset) append(ids []int32, loss []Span) {
	d.appendText(ids, loss...)
	d.stats.Rows++
	d.stats.Tokens += len(ids)
	d.stats.Longest = max(d.stats.Longest, len(ids))
	d.stats.LossTokens += sample{loss: loss}.targets()
}

// SetNumbers adds an array called name to batches, with a number for each text; x holds the numbers of all texts. Call
// it before creating batches.
func (d *Dataset) SetNumbers(name string, x []float32) error {
	if texts := d.Len() * d.texts; len(x) != texts {
		return problem(ErrOption, "%d numbers called %s for %d texts", len(x), name, texts)
	}
	d.numbers, d.named = x, name
	return nil
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
