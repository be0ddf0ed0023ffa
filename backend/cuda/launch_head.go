//go:build cuda && linux

package cuda

import (
	"gorgonia.org/cu"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// The launches here are those of linear_ce.cu, linear_ce_f32.cu and
// linear_ce_mma.cu in kernels/cuda: the head of a language model and its loss.

// headTypes are the types of weights, as kernels are named.
var headTypes = map[tensor.DType]string{
	tensor.F32: "f32", tensor.F16: "f16", tensor.BF16: "bf16", tensor.Q8: "q8", tensor.NF4: "nf4", tensor.FP4: "fp4",
}

func takesHead(_ *Device, _ any, in []ir.Type) bool {
	return headTypes[in[1].DType] != ""
}

// The logits that exist at one time are at most logitBytes, or those of
// logitRows rows where the vocabulary is large: the weights are read once for
// each stretch of rows, and with fewer of them memory could not keep up with the
// tensor cores.
var (
	logitBytes = 128 << 20
	logitRows  = 256
)

// stretchRows is how many of n rows are taken at a time for a vocabulary of v,
// where products have tiles of a side.
func stretchRows(n, v, tile int) int {
	per := max(logitBytes/(4*max(1, v)), logitRows) / tile * tile
	return max(1, min(per, n))
}

// head is a launch of the loss of a head.
type head struct {
	l       *ir.Launch
	grad    bool
	mma     bool
	tile    int // the side of what a block of products computes
	d, v    int
	per     int // rows of a stretch
	parts   int // of the products of gradients, which run along the vocabulary
	launch  int
	scratch struct{ count, rows, loss, x, logits, parts int } // places

	clear, rows, sum *kernel
	stretches        []headStretch
}

// headStretch is the kernels for one stretch of rows.
type headStretch struct{ gather, logits, losses, back, scatter *kernel }

func prepareHead(c *compiler, l *ir.Launch) (step, error) {
	h := &head{l: l, grad: l.Op == ir.LinearCrossEntropyGrad, mma: c.dev.precision == backend.BF16, tile: smallTile, launch: c.launch}
	if h.mma {
		h.tile = largeTile
	}
	n := l.In[2].Type.Shape.Elements(c.dims)
	h.v, h.d = l.In[1].Type.Shape[0].N, l.In[1].Type.Shape[1].N
	h.per = stretchRows(n, h.v, h.tile)
	h.parts = partsOf(blocks(h.per, h.tile)*blocks(h.d, h.tile), blocks(h.v, stageK))
	h.reserve(c, n)
	if err := h.take(c, n, headTypes[l.In[1].Type.DType]); err != nil {
		return nil, err
	}
	return h.step, nil
}

// reserve divides the scratch memory.
func (h *head) reserve(c *compiler, n int) {
	total := 0
	place := func(bytes int) int {
		at := total
		total += (bytes + 255) / 256 * 256
		return at
	}
	s := &h.scratch
	s.count, s.rows, s.loss = place(4), place(4*n), place(4*n)
	s.x, s.logits = place(4*h.per*h.d), place(4*h.per*h.v)
	if h.grad {
		s.parts = place(4 * h.parts * h.per * h.d)
	}
	c.reserve(total)
}

// take takes the kernels, in the order in which they run.
func (h *head) take(c *compiler, n int, weights string) (err error) {
	get := func(file, name string, threads int) (k *kernel) {
		if err == nil {
			k, err = c.kernel(file, name, threads)
		}
		return k
	}
	product := func(name string) *kernel {
		if !h.mma {
			return get("linear_ce_f32", name+"_f32_"+weights, 256)
		}
		k := get("linear_ce_mma", name+"_mma", 256)
		if err == nil {
			err = k.share(stagesBytes(h.tile))
		}
		return k
	}
	if h.grad {
		h.clear = get("linear_ce", "lce_clear", 256)
	}
	h.rows = get("linear_ce", "lce_rows", 1024)
	for range blocks(n, h.per) {
		var s headStretch
		s.gather, s.logits, s.losses = get("linear_ce", "lce_gather", 256), product("lce_logits"), get("linear_ce", "lce_losses", 1024)
		if h.grad {
			s.back, s.scatter = product("lce_back"), get("linear_ce", "lce_scatter", 256)
		}
		h.stretches = append(h.stretches, s)
	}
	if err == nil {
		h.sum, err = c.sumLosses(func(*run) int { return h.v })
	}
	return err
}

func (h *head) step(r *run) {
	at := func(offset int) cu.DevicePtr { return r.scratch + cu.DevicePtr(offset) }
	s, x, w, labels := &h.scratch, h.l.In[0], h.l.In[1], h.l.In[2]
	n, count, rows, loss := r.count(labels), at(s.count), at(s.rows), at(s.loss)
	total, dloss := h.l.Out[0], cu.DevicePtr(0)
	if h.grad {
		total, dloss = h.l.Out[1], r.at(h.l.In[3])
		h.clear.grid(n, 1, 1).pointer(r.at(h.l.Out[0])).pointer(r.at(labels)).int(h.d).int(h.v)
	}
	h.rows.grid(1, 1, 1).pointer(count).pointer(rows).pointer(loss).pointer(r.at(labels)).int(n).int(h.v)
	for i, k := range h.stretches {
		first := i * h.per
		m := min(h.per, n-first) // where all rows have a label; none or fewer end it at once
		k.gather.grid(m, 1, 1).pointer(at(s.x)).pointer(r.at(x)).pointer(rows).pointer(count).int(first).int(h.d)
		h.logits(k.logits, at(s.logits), at(s.x), r.at(w), count, first, m)
		k.losses.Block[0] = rowThreads(h.v)
		k.losses.grid(m, 1, 1).pointer(loss).pointer(at(s.logits)).pointer(r.at(labels)).pointer(rows).pointer(count)
		k.losses.int(first).int(h.v).pointer(dloss)
		if h.grad {
			h.back(k.back, at(s.parts), at(s.logits), r.at(w), count, first, m)
			k.scatter.grid(m, 1, 1).pointer(r.at(h.l.Out[0])).pointer(at(s.parts)).pointer(rows).pointer(count)
			k.scatter.int(first).int(h.d).int(h.per).int(h.parts)
		}
	}
	h.sum.grid(1, 1, 1).pointer(r.at(total)).pointer(loss).pointer(r.at(labels)).int(n).int(h.v).pointer(r.trap).int(h.launch)
}

func (h *head) logits(k *kernel, out, x, w, count cu.DevicePtr, first, m int) {
	down, across := blocks(m, h.tile), blocks(h.v, h.tile)
	if !h.mma {
		k.grid(across, down, 1).pointer(out).pointer(x).pointer(w)
		k.pointer(count).int(first).int(h.per).int(h.v).int(h.d)
		return
	}
	k.grid(down*across, 1, 1).pointer(out).pointer(x).pointer(w).int(h.operands(x, h.d, w, true))
	k.pointer(count).int(first).int(h.per).int(h.v).int(h.d).int(down)
}

func (h *head) back(k *kernel, parts, d, w, count cu.DevicePtr, first, m int) {
	down, across := blocks(m, h.tile), blocks(h.d, h.tile)
	if !h.mma {
		k.grid(across, down, h.parts).pointer(parts).pointer(d).pointer(w)
		k.pointer(count).int(first).int(h.per).int(h.d).int(h.v).int(h.parts)
		return
	}
	k.grid(down*across, h.parts, 1).pointer(parts).pointer(d).pointer(w).int(h.operands(d, h.v, w, false))
	k.pointer(count).int(first).int(h.per).int(h.d).int(h.v).int(down).int(h.parts)
}

// operands describes rows of so many numbers at a, and the weights, whose rows lie
// along the k axis or not.
func (h *head) operands(a cu.DevicePtr, row int, w cu.DevicePtr, along bool) int {
	return operandFlags(a, tensor.F32, row, true) | operandFlags(w, h.l.In[1].Type.DType, h.d, along)<<flagsShift
}
