package data

import (
	"slices"

	"github.com/lorafuse/lorafuse/tensor"
)

// Names of the text arrays of a batch, as models read them.
const (
	tokensArray    = "tokens"
	labelsArray    = "labels"
	positionsArray = "positions"
	loArray        = "lo"
	hiArray        = "hi"
	endArray       = "end"
	cacheRowsArray = "cache rows"
	pagesArray     = "pages"
	typesArray     = "types"
	classesArray   = "classes"
	valuesArray    = "values"
)

// Batch is the input of one model run: named arrays. Documents are concatenated without padding; a token attends to the
// tokens of its own document up to and including itself.
type Batch struct {
	// Starts holds the index of the first token of each document, and the end of the last one.
	Starts     []int32
	LossTokens int // labels other than Ignore, or rows of whole-row tasks
	// StepTokens is the number of loss tokens of the whole step. Zero means that of the batch.
	StepTokens int

	arrays []Array
}

// Array is a named array of int32 or float32 elements.
type Array struct {
	Name   string
	Ints   []int32
	Floats []float32
}

// Bytes returns the elements as bytes, without copying.
func (a Array) Bytes() []byte {
	if a.Floats != nil {
		return tensor.BytesOf(a.Floats)
	}
	return tensor.BytesOf(a.Ints)
}

// Arrays returns the arrays in the order in which they were added.
func (b *Batch) Arrays() []Array { return b.arrays }

// Array returns the bytes of the array called name.
func (b *Batch) Array(name string) (data []byte, ok bool) {
	for i := range b.arrays {
		if b.arrays[i].Name == name {
			return b.arrays[i].Bytes(), true
		}
	}
	return nil, false
}

// SetInts sets the array called name to x. The batch owns the memory of x until the array is set again.
func (b *Batch) SetInts(name string, x []int32) { *b.named(name) = Array{Name: name, Ints: x} }

// SetInt sets the array called name to a single number.
func (b *Batch) SetInt(name string, x int32) {
	a := b.named(name)
	a.Ints = append(a.Ints[:0], x)
}

// SetFloats sets the array called name to x; see SetInts.
func (b *Batch) SetFloats(name string, x []float32) { *b.named(name) = Array{Name: name, Floats: x} }

// Tokens returns the token ids of all documents.
func (b *Batch) Tokens() []int32 { return b.named(tokensArray).Ints }

// Labels returns the id to predict at each token (the next one), or Ignore.
func (b *Batch) Labels() []int32 { return b.named(labelsArray).Ints }

// Positions returns the position of each token in its document, from 0.
func (b *Batch) Positions() []int32 { return b.named(positionsArray).Ints }

// KeyStart returns the first key that each token attends to: token i sees [KeyStart[i], KeyEnd[i]).
func (b *Batch) KeyStart() []int32 { return b.named(loArray).Ints }

// KeyEnd returns the end of the keys that each token attends to.
func (b *Batch) KeyEnd() []int32 { return b.named(hiArray).Ints }

// End returns the end of each token's document. In a bidirectional model token i attends to [KeyStart[i], End[i]).
func (b *Batch) End() []int32 { return b.named(endArray).Ints }

// CacheRows returns the row of the KV cache in which the key of each token is stored; see AddPiece.
func (b *Batch) CacheRows() []int32 { return b.named(cacheRowsArray).Ints }

// Pages returns the KV cache pages of the documents; see AddPiece.
func (b *Batch) Pages() []int32 { return b.named(pagesArray).Ints }

// Types returns the token type of each token of labelled rows.
func (b *Batch) Types() []int32 { return b.named(typesArray).Ints }

// Classes returns the class id of each row of a single-label task.
func (b *Batch) Classes() []int32 { return b.named(classesArray).Ints }

// Values returns the numeric targets of rows, [rows, n]: 1 or 0 for each class of a multi-label task, or the target of
// a regression.
func (b *Batch) Values() []float32 { return b.named(valuesArray).Floats }

// Rows returns the number of documents.
func (b *Batch) Rows() int { return max(0, len(b.Starts)-1) }

// Longest returns the length of the longest document, in tokens.
func (b *Batch) Longest() int {
	longest := int32(0)
	for i := range b.Rows() {
		longest = max(longest, b.Starts[i+1]-b.Starts[i])
	}
	return int(longest)
}

// Reset empties the batch and keeps its memory for reuse.
func (b *Batch) Reset() {
	b.Starts, b.LossTokens, b.StepTokens = b.Starts[:0], 0, 0
	for i := range b.arrays {
		b.arrays[i].Ints, b.arrays[i].Floats = b.arrays[i].Ints[:0], b.arrays[i].Floats[:0]
	}
}

// Add appends a document. labels holds the id to predict at each of its tokens, or Ignore; nil means Ignore for all.
func (b *Batch) Add(ids, labels []int32) {
	at := len(b.Tokens())
	b.add(ids, at, 0)
	for i, id := range labels {
		b.label(at+i, id)
	}
}

// AddBatch appends the documents of another batch, with their labels.
func (b *Batch) AddBatch(other *Batch) {
	ids, labels := other.Tokens(), other.Labels()
	for i := range other.Rows() {
		from, to := other.Starts[i], other.Starts[i+1]
		b.Add(ids[from:to], labels[from:to])
	}
}

// AddAfter adds tokens of a document to an empty batch, after the first read tokens of the document. They attend to the
// keys of those tokens in a cache and then to their own.
func (b *Batch) AddAfter(ids []int32, read int) { b.add(ids, 0, read) }

// AddPiece appends tokens of a document, after the first read tokens of the document. All keys of the document are in
// pages of a paged KV cache, each of rows rows. Keys are numbered as if the pages were contiguous.
func (b *Batch) AddPiece(ids []int32, read int, pages []int32, rows int) {
	to := b.extend(cacheRowsArray, len(ids))
	for i := range to {
		at := read + i
		to[i] = pages[at/rows]*int32(rows) + int32(at%rows)
	}
	first := len(b.Pages())
	copy(b.extend(pagesArray, len(pages)), pages)
	b.add(ids, first*rows, read)
}

// Pad appends padding after AddPiece, up to tokens tokens and pages pages. A padding token attends to no keys and has no
// row in the cache, and no token attends to keys of a padding page.
func (b *Batch) Pad(tokens, pages int) {
	if n := tokens - len(b.Tokens()); n > 0 {
		for _, name := range []string{tokensArray, positionsArray, loArray, hiArray, endArray} {
			clear(b.extend(name, n))
		}
		fill(b.extend(labelsArray, n), Ignore)
		fill(b.extend(cacheRowsArray, n), -1)
	}
	if n := pages - len(b.Pages()); n > 0 {
		clear(b.extend(pagesArray, n))
	}
}

func fill(x []int32, value int32) {
	for i := range x {
		x[i] = value
	}
}

// add appends tokens, which attend to keys from number lo on. The first before of these keys belong to earlier tokens
// of their document.
func (b *Batch) add(ids []int32, lo, before int) {
	n, at := len(ids), int32(len(b.Tokens()))
	if len(b.Starts) == 0 {
		b.Starts = append(b.Starts, at)
	}
	b.Starts = append(b.Starts, at+int32(n))
	copy(b.extend(tokensArray, n), ids)
	fill(b.extend(labelsArray, n), Ignore)
	positions, from, to, end := b.extend(positionsArray, n), b.extend(loArray, n), b.extend(hiArray, n), b.extend(endArray, n)
	for i := range n {
		positions[i], from[i], to[i], end[i] = int32(before+i), int32(lo), int32(lo+before+i+1), int32(lo+before+n)
	}
}

// label sets the label at a token that has none.
func (b *Batch) label(at int, id int32) {
	b.Labels()[at] = id
	if id != Ignore {
		b.LossTokens++
	}
}

// AddRow appends a row of a dataset: a document, or each text of a whole-row task as a document.
func (b *Batch) AddRow(d *Dataset, doc int) {
	if d.whole {
		for i := range d.texts {
			b.addText(d, d.stored(doc)*d.texts+i, doc*d.texts+i)
		}
		if d.labels != nil {
			b.addLabel(d, doc)
		}
		b.LossTokens++
		return
	}
	start, end := d.span(doc)
	b.LossTokens += b.addTokens(d, start, end)
}

// addTokens appends tokens as a document, with their labels, and returns the number of labels.
func (b *Batch) addTokens(d *Dataset, start, end int) (labelled int) {
	lo := len(b.Tokens())
	d.store.use(start, end, func(words []int32) {
		b.add(words, lo, 0)
		ids, labels := b.Tokens()[lo:], b.Labels()[lo:]
		for i, w := range words {
			ids[i] = idOf(w)
			if i > 0 && w < 0 { // the last token of a document predicts nothing
				labels[i-1] = idOf(w)
				labelled++
			}
		}
	})
	return labelled
}

// addText appends a stored text of a whole-row task. Its answer tokens are labelled but not counted as loss tokens.
// number is the number of the text in the dataset.
func (b *Batch) addText(d *Dataset, t, number int) {
	b.addTokens(d, d.starts.at(t), d.starts.at(t+1))
	if d.numbers != nil {
		a := b.named(d.named)
		a.Floats = append(a.Floats, d.numbers[number])
	}
}

// addLabel appends the label of a row and the types of its tokens.
func (b *Batch) addLabel(d *Dataset, row int) {
	start, end := d.span(row)
	types := b.extend(typesArray, end-start)
	clear(types)
	if d.types != nil {
		copy(types, d.types[start:end])
	}
	d.labels.add(b, d.stored(row))
}

// named returns the array called name, and adds it if necessary.
func (b *Batch) named(name string) *Array {
	for i := range b.arrays {
		if b.arrays[i].Name == name {
			return &b.arrays[i]
		}
	}
	b.arrays = append(b.arrays, Array{Name: name})
	return &b.arrays[len(b.arrays)-1]
}

// extend extends an array by n elements and returns them.
func (b *Batch) extend(name string, n int) []int32 {
	a := b.named(name)
	from := len(a.Ints)
	a.Ints = slices.Grow(a.Ints, n)[:from+n]
	return a.Ints[from:]
}
