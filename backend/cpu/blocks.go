package cpu

import (
	"slices"
	"unsafe"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/tensor"
)

// Weights in block types of other programs (tensor.DType.Foreign) are multiplied as float32. Some columns of op(B) are
// widened at a time, into memory that all products share, and multiplied before the next ones are. A product with the
// widened weight has the same bits: the order of summation does not depend on the number of columns from 65 on, or from
// 257 on if B is not transposed. Products with more than blockDepth rows of B, such as the gradient of a language head,
// are divided along k too, and differ by rounding.

const (
	blockFloats = 1 << 20 // widened at a time if there are many rows
	fewFloats   = 1 << 16 // by one worker if there are few: some of the second-level cache
	fewColumns  = 72      // the least columns of such a task
	manyColumns = 256     // the least columns otherwise; a whole number of blocks of any type
	blockDepth  = 8192    // the most rows of B that are widened at a time
	fewRows     = 8       // for which each worker widens and multiplies columns of its own
)

// elemOf returns the type of a matrix's elements for a foreign dtype.
func elemOf(d tensor.DType) gemm.Elem { return gemm.Foreign + gemm.Elem(d-tensor.Q4_0) }

// isForeign reports whether the second matrix of a pair is in blocks that are widened here.
func isForeign(p *gemm.Pair) bool { return p.B.Elem >= gemm.Foreign }

func hasBlocks(c *gemm.Call) bool {
	return slices.ContainsFunc(c.Pairs, func(p gemm.Pair) bool { return isForeign(&p) })
}

// wide returns a copy of c with float32 in place of blocks, to ask for the memory that it needs. It returns c itself if
// c has no blocks.
func wide(c *gemm.Call) *gemm.Call {
	if !hasBlocks(c) {
		return c
	}
	w := *c
	w.Pairs = slices.Clone(c.Pairs)
	for i := range w.Pairs {
		if p := &w.Pairs[i]; isForeign(p) {
			p.B.Elem = gemm.F32
		}
	}
	return &w
}

// wideAll applies wide to several calls.
func wideAll(calls []*gemm.Call) []*gemm.Call {
	all := slices.Clone(calls)
	for i, c := range all {
		all[i] = wide(c)
	}
	return all
}

// blockTiles describes the division of a product with blocks.
type blockTiles struct {
	few    bool // each worker widens and multiplies columns of its own
	n      int  // of column ranges, if few
	step   int  // columns of a range otherwise
	depth  int  // rows of B at a time, if B is not transposed
	floats int  // that are widened at a time: by each worker if few
}

// tilesOf returns the division of a product with m rows.
func tilesOf(c *gemm.Call, m int) (t blockTiles) {
	k, along := 1, true
	for i := range c.Pairs {
		if p := &c.Pairs[i]; isForeign(p) {
			k, along = max(k, p.K), along && p.B.Trans
		}
	}
	if along && m <= fewRows {
		t.few, t.n = true, max(1, min(c.N/fewColumns, (c.N*k+fewFloats-1)/fewFloats))
		t.step, t.depth = (c.N+t.n-1)/t.n, k
	} else {
		t.depth = k
		if !along && len(c.Pairs) == 1 && c.Stored == nil {
			t.depth = min(k, blockDepth)
		}
		t.step = max(manyColumns, blockFloats/t.depth/manyColumns*manyColumns)
		if !along {
			t.step = max(t.step, 2*manyColumns)
		}
	}
	most := t.step
	if !t.few {
		most = min(c.N, t.step+t.step/2) // with a narrow rest
	}
	for i := range c.Pairs {
		if p := &c.Pairs[i]; isForeign(p) {
			t.floats += most * min(p.K, t.depth)
		}
	}
	return t
}

// reserveBlocks reserves memory for a product with blocks, of at most c.M rows.
func (r *run) reserveBlocks(c *gemm.Call) {
	if !hasBlocks(c) {
		return
	}
	n := tilesOf(c, c.M).floats
	if few := tilesOf(c, min(c.M, fewRows)); few.few {
		n = max(n, few.floats*r.dev.pool.Workers())
		small := *wide(c)
		small.M = min(c.M, fewRows)
		r.need.serial = r.need.serial.With(r.dev.gemm.Need(&small))
		if r.pieces == nil {
			r.pieces = make([]piece, r.dev.pool.Workers())
			r.fewTask = r.multiplyFew
		}
		for i := range r.pieces {
			r.pieces[i].call.Pairs = slices.Grow(r.pieces[i].call.Pairs[:0], len(c.Pairs))
		}
	}
	r.need.blocks = max(r.need.blocks, n)
	if r.widenTask == nil {
		r.widenTask = r.widenRange
	}
}

// multiplyBlocks computes a product with weights in blocks.
func (r *run) multiplyBlocks(c *gemm.Call) {
	t := tilesOf(c, c.M)
	if t.few {
		r.blockCall, r.tiles = c, t
		r.dev.pool.RunWorker(t.n, r.fewTask)
		return
	}
	for from := 0; from < c.N; {
		to := from + t.step
		if to+t.step/2 >= c.N { // with a narrow rest
			to = c.N
		}
		r.multiplyColumns(c, from, to, t.depth)
		from = to
	}
}

// multiplyColumns computes the columns [from,to) of a product, at most depth rows of B at a time.
func (r *run) multiplyColumns(c *gemm.Call, from, to, depth int) {
	whole := r.cut.columns(c, from, to)
	for first := 0; first == 0 || first < whole.Pairs[0].K; first += depth {
		call := whole
		if p := &whole.Pairs[0]; depth < p.K {
			call = r.deep.rows(whole, first, min(first+depth, p.K))
		}
		memory := r.dev.wide
		for i := range call.Pairs {
			if p := &call.Pairs[i]; isForeign(p) {
				memory = r.widen(p, call.N, memory)
			}
		}
		if r.rest != nil {
			r.rest()
		}
		r.dev.gemm.Run(call)
		if depth >= whole.Pairs[0].K {
			return
		}
	}
}

// rows returns the part of a product of one pair that rows [from,to) of B contribute. All but the first add to C.
func (p *piece) rows(c *gemm.Call, from, to int) *gemm.Call {
	pairs := append(p.call.Pairs[:0], c.Pairs...)
	p.call = *c
	p.call.Pairs = pairs
	if from > 0 {
		p.call.Accumulate, p.call.Bias = true, nil
	}
	pair := &pairs[0]
	step := pair.A.Elem.Size()
	if pair.A.Trans {
		step *= pair.A.Stride
	}
	pair.A.Data = unsafe.Add(pair.A.Data, from*step)
	pair.K = to - from
	pair.B.Data = unsafe.Add(pair.B.Data, dtypeOf(pair.B.Elem).Bytes(from*pair.B.Stride))
	return &p.call
}

// widening is the matrix that the workers widen: rows of cols elements each.
type widening struct {
	dst        []float32
	src        unsafe.Pointer
	dtype      tensor.DType
	rows, cols int
	stride     int // elements of the source from one row to the next
}

// of returns the widening of op(B) of a pair with n columns into dst.
func (w *widening) of(p *gemm.Pair, n int, dst []float32) {
	*w = widening{dst: dst, src: p.B.Data, dtype: dtypeOf(p.B.Elem), rows: p.K, cols: n, stride: p.B.Stride}
	if p.B.Trans {
		w.rows, w.cols = n, p.K
	}
}

// run widens rows [lo,hi).
func (w *widening) run(lo, hi int) {
	for i := lo; i < hi; i++ {
		row := unsafe.Slice((*byte)(unsafe.Add(w.src, w.dtype.Bytes(i*w.stride))), w.dtype.Bytes(w.cols))
		if err := quant.Dequantize(w.dst[i*w.cols:(i+1)*w.cols], row, 0, w.dtype); err != nil {
			panic(err)
		}
	}
}

// replace makes dst, where B of a pair has been widened, its B. It returns the rest of the memory.
func (w *widening) replace(p *gemm.Pair) []float32 {
	p.B = gemm.Matrix{Data: unsafe.Pointer(unsafe.SliceData(w.dst)), Stride: w.cols, Trans: p.B.Trans}
	return w.dst[w.rows*w.cols:]
}

// widen widens B of a pair with n columns on all workers. It returns the rest of the memory.
func (r *run) widen(p *gemm.Pair, n int, memory []float32) []float32 {
	r.widening.of(p, n, memory)
	r.rows(r.widening.rows, r.widening.cols, r.widenTask)
	return r.widening.replace(p)
}

func (r *run) widenRange(lo, hi int) { r.widening.run(lo, hi) }

// multiplyFew computes column range i of a product of few rows on one worker.
func (r *run) multiplyFew(worker, i int) {
	c, n := r.blockCall, r.tiles.n
	call := r.pieces[worker].columns(c, i*c.N/n, (i+1)*c.N/n)
	memory := r.dev.wide[worker*r.tiles.floats:][:r.tiles.floats]
	var w widening
	for k := range call.Pairs {
		if p := &call.Pairs[k]; isForeign(p) {
			w.of(p, call.N, memory)
			w.run(0, w.rows)
			memory = w.replace(p)
		}
	}
	r.dev.gemm.Serial(worker, call)
}
