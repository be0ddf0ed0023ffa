package gemm

import "slices"

// inRows computes a call so that the bits of a row do not depend on how many rows
// there are: by one way, chosen by columns, k and types alone, and as many rows at
// a time as that way takes. Ways sum each row by itself, in an order that the kernels
// promise to be the same for any number of rows.
type inRows struct {
	*job
	block Call // of the rows under way
}

func (f *inRows) bind(j *job) {
	f.job = j
	f.block.Pairs = make([]Pair, 0, usualPairs)
}

// SetInvariant makes the bits of a row of every call independent of the number of
// rows, as [Call.Invariant] does for one. It must not be called while a call runs.
func (e *Engine) SetInvariant(on bool) { e.invariant = on }

// byRow reports whether a call is one for inRows. One with a transposed A is none:
// its rows are those of a weight's gradient, and not of a batch.
func (e *Engine) byRow(c *Call) bool {
	return (e.invariant || c.Invariant) && !slices.ContainsFunc(c.Pairs, func(p Pair) bool { return p.A.Trans && !p.idle() })
}

// single reports whether a call is of one row and may go ways of its own for that.
func (e *Engine) single(c *Call) bool { return c.M == 1 && !e.byRow(c) }

// packsRows reports whether the rows of a call of inRows go by panels: where columns of B
// lie side by side and are many, as in dy·W, which tasks of few rows would read over and over.
func (c *Call) packsRows() bool {
	return c.N > colsThin && !c.readsAlong() && !c.quantized() && slices.ContainsFunc(c.Pairs, func(p Pair) bool { return p.K > shortMost && !p.idle() })
}

func (c *Call) quantized() bool {
	return slices.ContainsFunc(c.Pairs, func(p Pair) bool { return p.B.Elem.Quantized() })
}

// one is the way of a block of rows, and the most rows that it has.
func (f *inRows) one() (w way, most int) {
	switch c := f.c; {
	case c.packsRows():
		return &f.packed, max(1, c.M)
	case f.k.grid != nil && c.N >= gridLeast && c.readsAlong() && !c.quantized(): // a grid widens codes, for one row too
		return &f.grid, f.k.gridMost
	}
	return &f.fewRows, rowsFew
}

func (f *inRows) run() {
	c := f.c
	w, most := f.one()
	if c.M <= most {
		w.run()
		return
	}
	pairs := f.block.Pairs
	f.block = *c
	f.block.Filter = nil // run applies it to all rows in the end
	f.c = &f.block
	for m := 0; m < c.M; m += most {
		f.block.M = min(most, c.M-m)
		f.block.C = c.C[m*c.LDC:]
		f.block.Pairs = append(pairs[:0], c.Pairs...)
		for i := range f.block.Pairs {
			if p := &f.block.Pairs[i]; !p.idle() {
				p.A.Data = at(p.A.Data, m*p.A.Stride*p.A.Elem.Size())
			}
		}
		w.run()
	}
	f.c = c
	pairs = f.block.Pairs[:0]
	clear(pairs[:cap(pairs)]) // hold nothing of the caller
	f.block = Call{Pairs: pairs}
}

// needByRow is Need where rows may go by blocks.
func (e *Engine) needByRow(c *Call) Scratch {
	kern := e.k.manyRows(c.Pairs, e.Rounds())
	s := e.needOf(c, kern)
	for _, rows := range []int{1, rowsFew, rowsFew + 1, e.k.gridMost} {
		block := *c
		block.M = rows
		s = s.With(e.needOf(&block, kern))
	}
	return s
}
