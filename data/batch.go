package data

import (
	"slices"

	"github.com/lorafuse/lorafuse/tensor"
)

// Names of the arrays of text, under which models read them.
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

// Batch is what one run of a model is given: arrays by name. In those of text
// the documents lie one behind the other without padding, and a token sees those
// of its own document up to itself.
type Batch struct {
	// Starts are where the documents begin, and where the last one ends.
	Starts     []int32
	LossTokens int // labels that are not Ignore, or rows that are read whole
	// StepTokens are those of the step that the batch is part of; 0: its own.
	StepTokens int

	arrays []Array
}

// Array is an array of a batch: of numbers of one of two types.
type Array struct {
	Name   string
	Ints   []int32
	Floats []float32
}

// Bytes are those of the elements.
func (a Array) Bytes() []byte {
	if a.Floats != nil {
		return tensor.BytesOf(a.Floats)
	}
	return tensor.BytesOf(a.Ints)
}

// Arrays lists the arrays in the order in which they came.
func (b *Batch) Arrays() []Array { return b.arrays }

// Array gives the bytes of the array called name, as a run takes them.
func (b *Batch) Array(name string) (data []byte, ok bool) {
	for i := range b.arrays {
		if b.arrays[i].Name == name {
			return b.arrays[i].Bytes(), true
		}
	}
	return nil, false
}

// SetInts makes x the array called name. The memory of x is the batch's until
// the array is set again.
func (b *Batch) SetInts(name string, x []int32) { *b.named(name) = Array{Name: name, Ints: x} }

// SetInt makes the array called name one of a single number.
func (b *Batch) SetInt(name string, x int32) {
	a := b.named(name)
	a.Ints = append(a.Ints[:0], x)
}

// SetFloats makes x the array called name, as SetInts does.
func (b *Batch) SetFloats(name string, x []float32) { *b.named(name) = Array{Name: name, Floats: x} }

// Tokens are the ids of all documents.
func (b *Batch) Tokens() []int32 { return b.named(tokensArray).Ints }

// Labels are the ids to predict at each token (the next one), or Ignore.
func (b *Batch) Labels() []int32 { return b.named(labelsArray).Ints }

// Positions are the places of the tokens in their documents, from 0.
func (b *Batch) Positions() []int32 { return b.named(positionsArray).Ints }

// Lo are the first keys that the tokens attend to: token i sees [Lo[i], Hi[i]).
func (b *Batch) Lo() []int32 { return b.named(loArray).Ints }

// Hi are the keys behind the last ones that the tokens attend to.
func (b *Batch) Hi() []int32 { return b.named(hiArray).Ints }

// End are the keys behind the last ones of the tokens' own documents: a model whose
// tokens see what comes later too attends to [Lo[i], End[i]).
func (b *Batch) End() []int32 { return b.named(endArray).Ints }

// CacheRows are the rows of a cache that the keys of the tokens of pieces go into.
func (b *Batch) CacheRows() []int32 { return b.named(cacheRowsArray).Ints }

// Pages are the pages of a cache in which the keys of the documents of pieces lie.
func (b *Batch) Pages() []int32 { return b.named(pagesArray).Ints }

// Types are the types of the tokens of labelled rows.
func (b *Batch) Types() []int32 { return b.named(typesArray).Ints }

// Classes are the ids of the classes of the rows, where each has one.
func (b *Batch) Classes() []int32 { return b.named(classesArray).Ints }

// Values are what is to be said of rows in numbers, [rows, n]: for each class 1 where a
// row has it and else 0, or the one number of a regression.
func (b *Batch) Values() []float32 { return b.named(valuesArray).Floats }

// Rows is the number of documents.
func (b *Batch) Rows() int { return max(0, len(b.Starts)-1) }

// Longest is the length of the longest document, in tokens.
func (b *Batch) Longest() int {
	longest := int32(0)
	for i := range b.Rows() {
		longest = max(longest, b.Starts[i+1]-b.Starts[i])
	}
	return int(longest)
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	b.Starts, b.LossTokens, b.StepTokens = b.Starts[:0], 0, 0
	for i := range b.arrays {
		b.arrays[i].Ints, b.arrays[i].Floats = b.arrays[i].Ints[:0], b.arrays[i].Floats[:0]
	}
}

// Add puts a document behind the others. labels are what is to be predicted at
// each of its tokens, or Ignore; nil is Ignore for all.
func (b *Batch) Add(ids, labels []int32) {
	at := len(b.Tokens())
	b.add(ids, at, 0)
	for i, id := range labels {
		b.label(at+i, id)
	}
}

// AddBatch puts the documents of another batch behind the others, with their labels.
func (b *Batch) AddBatch(other *Batch) {
	ids, labels := other.Tokens(), other.Labels()
	for i := range other.Rows() {
		from, to := other.Starts[i], other.Starts[i+1]
		b.Add(ids[from:to], labels[from:to])
	}
}

// AddAfter puts a piece of a document into an empty batch, of which the first
// tokens, so many, have been read: it sees their keys in a cache, and then its own.
func (b *Batch) AddAfter(ids []int32, read int) { b.add(ids, 0, read) }

// AddPiece puts a piece of a document behind those of others, of which the first
// tokens, so many, have been read. The keys of the document, also those of the piece, lie
// in pages of a cache, each of so many rows: keys are counted as these follow each other.
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

// add puts tokens behind the others: they see the keys from number lo on, and
// before them lie those of so many tokens of their document.
func (b *Batch) add(ids []int32, lo, before int) {
	n, at := len(ids), int32(len(b.Tokens()))
	if len(b.Starts) == 0 {
		b.Starts = append(b.Starts, at)
	}
	b.Starts = append(b.Starts, at+int32(n))
	copy(b.extend(tokensArray, n), ids)
	labels := b.extend(labelsArray, n)
	for i := range labels {
		labels[i] = Ignore
	}
	positions, from, to, end := b.extend(positionsArray, n), b.extend(loArray, n), b.extend(hiArray, n), b.extend(endArray, n)
	for i := range n {
		positions[i], from[i], to[i], end[i] = int32(before+i), int32(lo), int32(lo+before+i+1), int32(lo+before+n)
	}
}

// label sets the label at a token that had none.
func (b *Batch) label(at int, id int32) {
	b.Labels()[at] = id
	if id != Ignore {
		b.LossTokens++
	}
}

// AddRow puts a row of a data set behind the others: a document, or the texts of a row
// that is read whole, each as a document.
func (b *Batch) AddRow(d *Dataset, doc int) {
	if d.whole {
		for t := doc * d.texts; t < (doc+1)*d.texts; t++ {
			b.addText(d, t)
		}
		if d.labels != nil {
			b.addLabel(d, doc)
		}
		b.LossTokens++
		return
	}
	start, end := d.span(doc)
	lo := len(b.Tokens())
	b.Add(d.ids[start:end], nil)
	for i := start; i+1 < end; i++ { // the last token predicts nothing of its document
		b.label(lo+i-start, d.label(i+1))
	}
}

// addText puts a text of a row that is read whole behind the others. What of it is an
// answer is labelled, and counts for nothing by itself.
func (b *Batch) addText(d *Dataset, t int) {
	from, to := d.starts[t], d.starts[t+1]
	lo := len(b.Tokens())
	b.Add(d.ids[from:to], nil)
	labels := b.Labels()
	for i := from; i+1 < to; i++ {
		labels[lo+i-from] = d.label(i + 1)
	}
	if d.numbers != nil {
		a := b.named(d.named)
		a.Floats = append(a.Floats, d.numbers[t])
	}
}

// addLabel puts what a row is to teach behind that of the others, and the types of its
// tokens.
func (b *Batch) addLabel(d *Dataset, row int) {
	start, end := d.span(row)
	types := b.extend(typesArray, end-start)
	clear(types)
	if d.types != nil {
		copy(types, d.types[start:end])
	}
	d.labels.add(b, row)
}

// named is the array called name, a new one if there is none.
func (b *Batch) named(name string) *Array {
	for i := range b.arrays {
		if b.arrays[i].Name == name {
			return &b.arrays[i]
		}
	}
	b.arrays = append(b.arrays, Array{Name: name})
	return &b.arrays[len(b.arrays)-1]
}

// extend makes an array n elements longer and gives these.
func (b *Batch) extend(name string, n int) []int32 {
	a := b.named(name)
	from := len(a.Ints)
	a.Ints = slices.Grow(a.Ints, n)[:from+n]
	return a.Ints[from:]
}
