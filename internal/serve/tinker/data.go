package tinker

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/internal/train/session"
)

// batch returns the data of a request and its loss. It fails with ErrRequest or ErrUnsupported.
func (r *request) batch() ([]session.Datum, session.Loss, error) {
	l := session.Loss{Name: r.loss, Config: r.config}
	if r.unsupported != nil {
		return nil, l, r.unsupported
	}
	all := make([]session.Datum, len(r.data))
	for i := range r.data {
		if err := r.data[i].into(&all[i]); err != nil {
			return nil, l, fmt.Errorf("data[%d]: %w", i, err)
		}
	}
	return all, l, nil
}

// targetTokens is the entry of loss_fn_inputs that all losses read.
const targetTokens = "target_tokens"

// into converts d to a session.Datum.
func (d *datum) into(to *session.Datum) error {
	to.Tokens = d.tokens
	floats := map[string]*[]float32{
		"weights": &to.Weights, "logprobs": &to.Logprobs, "advantages": &to.Advantages,
		"clip_low_threshold": &to.ClipLow, "clip_high_threshold": &to.ClipHigh,
	}
	t, ok := d.inputs[targetTokens]
	if !ok {
		return fmt.Errorf("%w: loss_fn_inputs: %s is missing", ErrRequest, targetTokens)
	}
	ids, err := t.ints()
	if err != nil {
		return fmt.Errorf("%s: %w", targetTokens, err)
	}
	if to.K, err = t.width(len(d.tokens)); err != nil {
		return fmt.Errorf("%s: %w", targetTokens, err)
	}
	to.Targets = make([]int32, len(ids))
	for i, id := range ids {
		if id < math.MinInt32 || id > math.MaxInt32 {
			return fmt.Errorf("%w: %s: found %d at %d, expected a token", ErrRequest, targetTokens, id, i)
		}
		to.Targets[i] = int32(id)
	}
	for name, t := range d.inputs {
		if name == targetTokens {
			continue
		}
		place := floats[name]
		if place == nil {
			names := []string{targetTokens}
			for name := range floats {
				names = append(names, name)
			}
			slices.Sort(names)
			return fmt.Errorf("%w: loss_fn_inputs: %s", ErrRequest, suggest.Expected(name, names))
		}
		if *place, err = t.floats(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if len(*place) != len(ids) {
			return fmt.Errorf("%w: %s: found %d numbers, expected %d, as many as %s", ErrRequest, name, len(*place), len(ids), targetTokens)
		}
	}
	if t.csr != nil { // unlisted positions are not trained on
		listed, err := t.listed()
		if err != nil {
			return fmt.Errorf("%s: %w", targetTokens, err)
		}
		given := to.Weights != nil
		if !given {
			to.Weights = make([]float32, len(ids))
		}
		for i, is := range listed {
			switch {
			case !is:
				to.Weights[i] = 0
			case !given:
				to.Weights[i] = 1
			}
		}
	}
	return nil
}

// maxElements limits the number of elements of a sparse tensor in dense form.
const maxElements = 1 << 26

// elements returns the number of elements of the shape.
func (t *tensorData) elements() (int, error) {
	n := int64(1)
	for _, d := range t.shape {
		if d < 0 || d > maxElements || n*d > maxElements {
			return 0, fmt.Errorf("%w: a shape of %v, expected at most %d elements", ErrRequest, t.shape, maxElements)
		}
		n *= d
	}
	return int(n), nil
}

// width returns the number of targets per token: 1 for a shape [N], K for [N, K].
func (t *tensorData) width(tokens int) (int, error) {
	switch {
	case len(t.shape) == 0 && t.csr == nil:
		return 0, nil
	case len(t.shape) == 1 && t.shape[0] == int64(tokens):
		return 0, nil
	case len(t.shape) == 2 && t.shape[0] == int64(tokens) && t.shape[1] > 0 && t.shape[1] <= maxElements:
		return int(t.shape[1]), nil
	}
	return 0, fmt.Errorf("%w: a shape of %v for %d tokens, expected [%d] or [%d, K]", ErrRequest, t.shape, tokens, tokens, tokens)
}

// floats returns the elements of a float32 tensor, row by row.
func (t *tensorData) floats() ([]float32, error) {
	return elements(t, float32s, "float32", 4, func(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) })
}

// ints returns the elements of an int64 tensor, row by row.
func (t *tensorData) ints() ([]int64, error) {
	return elements(t, int64s, "int64", 8, func(b []byte) int64 { return int64(binary.LittleEndian.Uint64(b)) })
}

// elements decodes a tensor.
func elements[T any](t *tensorData, want dtype, name string, size int, read func([]byte) T) ([]T, error) {
	if t.dtype != want {
		return nil, fmt.Errorf("%w: element type %d, expected %s (%d)", ErrRequest, t.dtype, name, want)
	}
	raw := t.dense
	if t.csr != nil {
		raw = t.csr.values
	}
	if len(raw)%size != 0 {
		return nil, fmt.Errorf("%w: found %d bytes, expected %d for each element", ErrRequest, len(raw), size)
	}
	values := make([]T, len(raw)/size)
	for i := range values {
		values[i] = read(raw[i*size:])
	}
	if t.csr == nil {
		if n, err := t.elements(); err != nil || len(t.shape) > 0 && n != len(values) {
			return nil, fmt.Errorf("%w: found %d elements, expected a shape of %v", ErrRequest, len(values), t.shape)
		}
		return values, nil
	}
	n, err := t.elements()
	if err != nil {
		return nil, err
	}
	dense := make([]T, n)
	err = t.cells(len(values), func(i, cell int) { dense[cell] = values[i] })
	return dense, err
}

// listed reports for each element of a sparse tensor whether it has a value.
func (t *tensorData) listed() ([]bool, error) {
	n, err := t.elements()
	if err != nil {
		return nil, err
	}
	listed := make([]bool, n)
	err = t.cells(len(t.csr.cols)/8, func(_, cell int) { listed[cell] = true })
	return listed, err
}

// cells calls each with the index and the dense position of every value of a sparse tensor.
func (t *tensorData) cells(values int, each func(i, cell int)) error {
	if len(t.shape) != 2 {
		return fmt.Errorf("%w: a sparse tensor of shape %v, expected [N, K]", ErrRequest, t.shape)
	}
	rows, cols := int(t.shape[0]), int(t.shape[1])
	if len(t.csr.rows) != 8*(rows+1) || len(t.csr.cols) != 8*values {
		return fmt.Errorf("%w: crow_indices of %d bytes and col_indices of %d, expected %d and %d", ErrRequest, len(t.csr.rows), len(t.csr.cols), 8*(rows+1), 8*values)
	}
	at := func(b []byte, i int) int64 { return int64(binary.LittleEndian.Uint64(b[8*i:])) }
	if at(t.csr.rows, 0) != 0 || at(t.csr.rows, rows) != int64(values) {
		return fmt.Errorf("%w: crow_indices go from %d to %d, expected 0 to %d", ErrRequest, at(t.csr.rows, 0), at(t.csr.rows, rows), values)
	}
	for row := range rows {
		from, to := at(t.csr.rows, row), at(t.csr.rows, row+1)
		if from > to || from < 0 || to > int64(values) {
			return fmt.Errorf("%w: crow_indices: found %d behind %d", ErrRequest, to, from)
		}
		for i := from; i < to; i++ {
			col := at(t.csr.cols, int(i))
			if col < 0 || col >= int64(cols) {
				return fmt.Errorf("%w: col_indices: found %d, expected less than %d", ErrRequest, col, cols)
			}
			each(int(i), row*cols+int(col))
		}
	}
	return nil
}
