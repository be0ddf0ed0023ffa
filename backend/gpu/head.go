package gpu

import (
	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// These launches run the kernels of linear_ce.cu, linear_ce_f32.cu and linear_ce_mma.cu in kernels/cuda: the head of a
// language model and its loss.

// headTypes are the types of weights, as kernels are named.
var headTypes = map[tensor.DType]string{
	tensor.F32: "f32", tensor.F16: "f16", tensor.BF16: "bf16", tensor.Q8: "q8", tensor.NF4: "nf4", tensor.FP4: "fp4",
}

func takesHead(_ any, in []ir.Type) bool { return headTypes[in[1].DType] != "" }

// storesHead reports whether the kernels read or write an operand as bfloat16: x, the weights and the gradient of x.
func storesHead(_ any, in []ir.Type, at ir.Place) bool {
	if at.Out {
		return at.Index == 0 && len(in) == 4
	}
	return at.Index < 2 && in[at.Index].DType == tensor.F32
}

// stretchRows returns how many of n rows are processed at a time for a vocabulary of size v and product tiles of the
// given side.
func (s *Sizes) stretchRows(n, v, tile int) int {
	per := max(s.LogitBytes/(4*max(1, v)), s.LogitRows) / tile * tile
	return max(1, min(per, n))
}

// head is a launch of the loss of a head.
type head struct {
	l       *ir.Launch
	grad    bool
	apart   bool // losses and their gradients by row
	mma     bool
	bulk    bool // the products run in gemm_bf16.cu, of gradients of logits in bfloat16
	tile    int  // side of the output tile that a block computes
	d, v    int
	per     int // rows per group
	parts   int // of the products of gradients, which run along the vocabulary
	launch  int
	scratch struct{ count, rows, loss, x, logits, parts, grad int } // places

	clear, rows, sum *Kernel
	stretches        []headStretch
}

// headStretch holds the kernels for one group of rows.
type headStretch struct{ gather, logits, losses, back, scatter *Kernel }

func prepareHead(c *compiler, l *ir.Launch) (step, error) {
	a, _ := l.Attr.(ir.CrossEntropyAttr)
	h := &head{l: l, apart: a.ByRow, grad: l.Op == ir.LinearCrossEntropyGrad, mma: c.target.Precision == backend.BF16, tile: smallTile, launch: c.launch}
	if h.mma && c.target.LargeTiles > 0 {
		h.tile = largeTile
	}
	n := l.In[2].Type.Shape.Elements(c.dims)
	h.v, h.d = l.In[1].Type.Shape[0].N, l.In[1].Type.Shape[1].N
	if h.bulk = h.bulks(c, n); h.bulk {
		h.per, h.parts = max(bulkLogitRows, c.target.stretchRows(n, h.v, bulkRows)), 1
	} else {
		h.per = c.target.stretchRows(n, h.v, h.tile)
		h.parts = partsOf(blocks(h.per, h.tile)*blocks(h.d, h.tile), blocks(h.v, stageK))
	}
	h.reserve(c, n)
	if err := h.take(c, n, headTypes[l.In[1].Stored()]); err != nil {
		return nil, err
	}
	return h.step, nil
}

// bulkLogitRows is the number of rows for which gemm_bf16.cu has enough tiles in both products of a head.
const bulkLogitRows = 1024

// bulks reports whether gemm_bf16.cu computes the products of n rows.
func (h *head) bulks(c *compiler, n int) bool {
	return h.mma && c.target.LargeTiles > 0 && h.l.In[1].Stored() == tensor.BF16 && n >= bulkLogitRows && h.v%bulkStep == 0 && h.d%bulkStep == 0 && c.target.holds(bulkBytes(bulkWide))
}

// reserve divides the scratch memory.
func (h *head) reserve(c *compiler, n int) {
	var whole area
	place, s := whole.take, &h.scratch
	s.count, s.rows, s.loss = place(4), place(4*n), place(4*n)
	s.x, s.logits = place(h.rowType().Bytes(h.per*h.d)), place(4*h.per*h.v)
	if h.grad {
		s.parts = place(4 * h.parts * h.per * h.d)
	}
	if h.bulk && h.grad {
		s.grad = place(2 * h.per * h.v)
	}
	c.reserve(whole.size)
}

// rowType returns the type of the rows of x that are gathered: that which products round them to.
func (h *head) rowType() tensor.DType {
	if h.mma {
		return tensor.BF16
	}
	return tensor.F32
}

// take loads the kernels in execution order.
func (h *head) take(c *compiler, n int, weights string) (err error) {
	get := func(file, name string, threads int) (k *Kernel) {
		if err == nil {
			k, err = c.kernel(file, name, threads)
		}
		return k
	}
	product := func(name string, nt bool) (k *Kernel) {
		switch {
		case err != nil:
		case h.bulk:
			k, err = c.bulkKernel(bulkLayout(nt), bulkWide)
		case h.mma:
			k, err = c.sharing("linear_ce_mma", name+"_mma", 2*h.tile, stagesBytes(h.tile)) // threads: two for each row of the tile
		default:
			k, err = c.kernel("linear_ce_f32", name+"_f32_"+weights, 256)
		}
		return k
	}
	if h.grad {
		h.clear = get("linear_ce", "lce_clear", 256)
	}
	h.rows = get("linear_ce", "lce_rows", 1024)
	for range blocks(n, h.per) {
		var s headStretch
		s.gather = get("linear_ce", "lce_gather", 256)
		s.logits, s.losses = product("lce_logits", true), get("linear_ce", "lce_losses", 1024)
		if h.grad {
			s.back, s.scatter = product("lce_back", false), get("linear_ce", "lce_scatter", 256)
		}
		h.stretches = append(h.stretches, s)
	}
	if err == nil {
		h.sum, err = c.sumLosses(func(*Run) int { return h.v })
	}
	return err
}

func (h *head) step(r *Run) {
	at := func(offset int) Pointer { return r.Scratch + Pointer(offset) }
	s, x, w, labels := &h.scratch, h.l.In[0], h.l.In[1], h.l.In[2]
	n, count, rows, loss := r.count(labels), at(s.count), at(s.rows), at(s.loss)
	total, dloss, grad := h.l.Out[0], Pointer(0), Pointer(0)
	if h.grad {
		total, dloss = h.l.Out[1], r.at(h.l.In[3])
		h.clear.grid(n, 1, 1).pointer("dx", r.at(h.l.Out[0])).pointer("labels", r.at(labels)).int("d", h.d).int("v", h.v).int("stored", narrow(h.l.Out[0]))
		if h.bulk {
			grad = at(s.grad)
		}
	}
	sum, added := r.at(total), loss
	if h.apart { // nothing is added, but labels are checked
		loss, sum, added = sum, 0, 0
	}
	h.rows.grid(1, 1, 1).pointer("count", count).pointer("rows", rows).pointer("loss", loss).pointer("labels", r.at(labels)).int("n", n).int("v", h.v)
	for i, k := range h.stretches {
		first := i * h.per
		m := min(h.per, n-first) // upper bound: blocks past the number of labelled rows exit at once
		k.gather.grid(m, 1, 1).pointer("out", at(s.x)).pointer("x", r.at(x)).pointer("rows", rows).pointer("count", count)
		k.gather.int("first", first).int("d", h.d).int("stored", bit(h.mma)|narrow(x)<<1)
		if h.bulk {
			h.multiply(k.logits, at(s.logits), at(s.x), r.at(w), count, first, m, h.v, h.d)
		} else {
			h.logits(k.logits, at(s.logits), at(s.x), r.at(w), count, first, m)
		}
		k.losses.threads(rowThreads(h.v))
		k.losses.grid(m, 1, 1).pointer("loss", loss).pointer("logits", at(s.logits)).pointer("labels", r.at(labels)).pointer("rows", rows).pointer("count", count)
		k.losses.pointer("dloss", dloss).pointer("grad", grad).int("first", first).int("v", h.v).int("apart", bit(h.apart))
		if h.grad {
			if h.bulk {
				h.multiply(k.back, at(s.parts), grad, r.at(w), count, first, m, h.d, h.v)
			} else {
				h.back(k.back, at(s.parts), at(s.logits), r.at(w), count, first, m)
			}
			k.scatter.grid(m, 1, 1).pointer("dx", r.at(h.l.Out[0])).pointer("partial", at(s.parts)).pointer("rows", rows).pointer("count", count)
			k.scatter.int("first", first).int("d", h.d).int("per", h.per).int("parts", h.parts).int("stored", narrow(h.l.Out[0]))
		}
	}
	h.sum.grid(1, 1, 1).pointer("out", sum).pointer("loss", added).pointer("labels", r.at(labels)).pointer("trap", r.Trap).int("n", n).int("v", h.v).int("launch", h.launch)
}

// multiply fills in the product of at most m rows of a, fewer if count says so, with op(w).
func (h *head) multiply(k *Kernel, out, a, w, count Pointer, first, m, n, size int) {
	k.bulkTiles(m, n, bulkWide, 0, out, 0, 0).pointer("rows", count).int("first", first)
	k.int("low", 0).int("count", 1).long("step_a", 0).long("step_b", 0).product(0, a, w, size, 0, 1)
	k.products(1)
}

func (h *head) logits(k *Kernel, out, x, w, count Pointer, first, m int) {
	down, across := blocks(m, h.tile), blocks(h.v, h.tile)
	if !h.mma {
		k.grid(across, down, 1).pointer("out", out).pointer("x", x).pointer("weights", w)
		k.pointer("count", count).int("first", first).int("per", h.per).int("n", h.v).int("k", h.d)
		return
	}
	k.grid(down*across, 1, 1).pointer("out", out).pointer("x", x).pointer("weights", w).int("flags", h.operands(x, h.rowType(), h.d, w, true))
	k.pointer("count", count).int("first", first).int("per", h.per).int("n", h.v).int("k", h.d).int("tiles_m", down)
}

func (h *head) back(k *Kernel, parts, d, w, count Pointer, first, m int) {
	down, across := blocks(m, h.tile), blocks(h.d, h.tile)
	if !h.mma {
		k.grid(across, down, h.parts).pointer("partial", parts).pointer("d", d).pointer("weights", w)
		k.pointer("count", count).int("first", first).int("per", h.per).int("n", h.d).int("k", h.v).int("parts", h.parts)
		return
	}
	k.grid(down*across, h.parts, 1).pointer("partial", parts).pointer("d", d).pointer("weights", w).int("flags", h.operands(d, tensor.F32, h.v, w, false))
	k.pointer("count", count).int("first", first).int("per", h.per).int("n", h.d).int("k", h.v).int("tiles_m", down).int("parts", h.parts)
}

// operands returns the flags for rows of the given type and length at a, and for the weights. If along is set, the
// weights' rows run along the k axis.
func (h *head) operands(a Pointer, d tensor.DType, row int, w Pointer, along bool) int {
	return operandFlags(a, d, row, true) | operandFlags(w, h.l.In[1].Stored(), h.d, along)<<flagsShift
}
