package gemm

// rowBlocksWay makes the bits of a row independent of how many rows there are. It sends all
// rows one way, chosen by columns, k and types alone, a block of rows at a time. That way sums
// each row by itself, in an order that its kernels keep for any number of rows.
type rowBlocksWay struct{ of way }

// rowBlocks is a call on that way.
type rowBlocks struct {
	*job
	block Call // of the rows under way
}

func (f *rowBlocks) bind(j *job) {
	f.job = j
	f.block.Pairs = make([]Pair, 0, usualPairs)
}

// SetInvariant makes the bits of a row of every call independent of the number of
// rows, as [Call.Invariant] does for one. It must not be called while a call runs.
func (e *Engine) SetInvariant(on bool) { e.mode.invariant = on }

// most returns the maximum number of rows of a block.
func (w rowBlocksWay) most(l *limits) int {
	if w.of == (rowsInPlaceWay{}) {
		return l.inPlaceRows
	}
	return rowsFew
}

func (w rowBlocksWay) run(j *job) { j.rowBlocks.run(w.of, w.most(&j.k.limits)) }

func (f *rowBlocks) run(of way, most int) {
	c := f.c
	if c.M <= most {
		of.run(f.job)
		return
	}
	pairs := f.block.Pairs
	f.block = *c
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
		of.run(f.job)
	}
	f.c = c
	pairs = f.block.Pairs[:0]
	clear(pairs[:cap(pairs)]) // hold nothing of the caller
	f.block = Call{Pairs: pairs}
}

func (w rowBlocksWay) need(s *shape) Scratch {
	if !s.invariant {
		return Scratch{}
	}
	block, rows := *s, *s.Call
	rows.M = min(rows.M, w.most(s.limits))
	block.Call = &rows
	need := w.of.need(&block)
	need.Whole = s.wholeFloats(s.M)
	return need
}
