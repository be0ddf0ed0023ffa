package data

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/safetensors"
)

// Tensors of a file of token ids, all of one shape: [rows, length], or [batches, rows, length] for recorded batches,
// which are used in order.
const (
	inputIDs      = "input_ids"      // I64 or I32
	labels        = "labels"         // likewise; if missing, every token carries loss
	attentionMask = "attention_mask" // 0 or 1; if missing, every token is used
)

var tensorNames = []string{inputIDs, labels, attentionMask}

// tokens reads a file of tokenized rows.
func (l *loading) tokens(in *input) error {
	file := in.name
	f, err := l.encoder.tensors(in)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, name := range f.Names() {
		if !slices.Contains(tensorNames, name) {
			return at(file, 0, problem(ErrKeys, "found tensor %q, expected input_ids, labels and attention_mask alone%s",
				name, suggest.DidYouMean(name, tensorNames)))
		}
	}
	ids, err := readInts(f, inputIDs)
	if err != nil {
		return at(file, 0, err)
	}
	table := tokenTable{file: file, shape: ids.shape, ids: ids.values}
	for _, part := range []struct {
		name   string
		values *[]int32
	}{{labels, &table.labels}, {attentionMask, &table.mask}} {
		if !f.Has(part.name) {
			continue
		}
		t, err := readInts(f, part.name)
		if err != nil {
			return at(file, 0, err)
		}
		if !slices.Equal(t.shape, ids.shape) {
			return at(file, 0, problem(ErrFormat, "%s: shape %v, expected %v as input_ids has it", part.name, t.shape, ids.shape))
		}
		*part.values = t.values
	}
	switch len(ids.shape) {
	case 2:
	case 3:
		if l.set.Len() > 0 || l.set.stats.Files > 0 {
			return at(file, 0, problem(ErrMixed, "found recorded batches beside another file, expected that one alone"))
		}
		l.set.batch = ids.shape[1]
	default:
		return at(file, 0, problem(ErrFormat, "input_ids: shape %v, expected [rows, length] or [batches, rows, length]", ids.shape))
	}
	before := l.set.stats.Rows
	err = l.addTable(table)
	l.set.sources = append(l.set.sources, Source{Name: file, Format: FormatTokens, Layout: "token ids", Rows: l.set.stats.Rows - before})
	return err
}

// tensors opens a file of token ids, which is mapped unless it is in Files or compressed.
func (o *Options) tensors(in *input) (*safetensors.File, error) {
	if o.Files == nil && in.compressed == "" {
		f, err := safetensors.Open(in.name)
		if err != nil {
			return nil, fmt.Errorf("data: %w", err)
		}
		return f, nil
	}
	raw, err := in.all()
	if err != nil {
		return nil, err
	}
	f, err := safetensors.FromBytes(raw)
	if err != nil {
		return nil, fmt.Errorf("data: %s: %w", in.name, err)
	}
	return f, nil
}

// tokenTable holds the contents of a file: rows of equal length.
type tokenTable struct {
	file              string
	shape             []int
	ids, labels, mask []int32 // labels and mask may be nil
}

// addTable appends the rows of the file.
func (l *loading) addTable(t tokenTable) error {
	length := t.shape[len(t.shape)-1]
	if length == 0 {
		return nil
	}
	rows := len(t.ids) / length
	for r := range rows {
		s, err := t.row(r, length)
		if err == nil {
			err = l.encoder.checkIDs(s.ids)
		}
		if err == nil {
			s, err = l.encoder.fit(s)
		}
		if err != nil {
			return at(t.place(r), 0, err)
		}
		switch {
		case l.set.batch == 0 && s.targets() == 0 && s.truncated:
			return at(t.place(r), 0, problem(ErrNoTarget, "cut to max_length %d, it keeps no token that carries loss", l.encoder.MaxLength))
		case l.set.batch == 0:
			s.empty = !s.dropped && s.targets() == 0
		case s.dropped:
			return at(t.place(r), 0, problem(ErrTooLong, "longer than max_length %d, and no row of a recorded batch can be left out", l.encoder.MaxLength))
		}
		if err := l.add(s); err != nil {
			return err
		}
		if l.set.batch > 0 && (r+1)%l.set.batch == 0 && l.set.batchTargets(r+1-l.set.batch) == 0 {
			return at(t.file, 0, problem(ErrNoTarget, "batch %d holds no token that carries loss", r/l.set.batch))
		}
	}
	return nil
}

// batchTargets returns the number of targets of the recorded batch that starts with row.
func (d *Dataset) batchTargets(row int) int {
	n := 0
	for r := range d.batch {
		n += d.Targets(row + r)
	}
	return n
}

// row removes padding from row r: tokens that the mask excludes, and trailing tokens without loss, which do not affect
// the others.
func (t tokenTable) row(r, length int) (sample, error) {
	from, to := r*length, (r+1)*length
	ids := t.ids[from:to]
	given := ids
	if t.labels != nil {
		given = t.labels[from:to]
	}
	first, last := 0, length
	if t.mask != nil {
		var err error
		if first, last, err = kept(t.mask[from:to]); err != nil {
			return sample{}, err
		}
	}
	loss, err := labelSpans(Row{IDs: ids[first:last], Labels: given[first:last]})
	if err != nil {
		return sample{}, err
	}
	end := 0
	if len(loss) > 0 {
		end = loss[len(loss)-1].End
	}
	return sample{ids: ids[first : first+end], loss: loss}, nil
}

// kept returns the range of tokens that a mask keeps.
func kept(mask []int32) (first, last int, err error) {
	first = max(slices.Index(mask, 1), 0)
	for last = first; last < len(mask) && mask[last] == 1; last++ {
	}
	for i, m := range mask {
		if m != 0 && (m != 1 || i >= last) {
			return 0, 0, problem(ErrFormat, "attention_mask: found %d at token %d, expected ones in a row between zeros", m, i)
		}
	}
	return first, last, nil
}

// place describes row r in errors.
func (t tokenTable) place(r int) string {
	if len(t.shape) == 3 {
		return fmt.Sprintf("%s: batch %d, row %d", t.file, r/t.shape[1], r%t.shape[1])
	}
	return fmt.Sprintf("%s: row %d", t.file, r)
}

// ints is an integer tensor.
type ints struct {
	shape  []int
	values []int32
}

// readInts reads a tensor of I64 or I32, whose values must fit int32.
func readInts(f *safetensors.File, name string) (ints, error) {
	v, err := f.Lookup(name)
	if err != nil {
		return ints{}, problem(ErrKeys, "tensor %s is missing", name)
	}
	size := map[safetensors.DType]int{safetensors.I32: 4, safetensors.I64: 8}[v.DType]
	if size == 0 {
		return ints{}, problem(ErrFormat, "%s: type %v, expected I64 or I32", name, v.DType)
	}
	t := ints{shape: v.Shape, values: make([]int32, v.Len()/size)}
	err = v.WithBytes(func(raw []byte) error {
		for i := range t.values {
			value := int64(int32(binary.LittleEndian.Uint32(raw[i*size:])))
			if size == 8 {
				value = int64(binary.LittleEndian.Uint64(raw[i*size:]))
			}
			if value < math.MinInt32 || value > math.MaxInt32 {
				return problem(ErrTokenID, "%s: element %d is %d, which is no token id", name, i, value)
			}
			t.values[i] = int32(value)
		}
		return nil
	})
	return t, err
}
