package cpu

import (
	"math"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// autoRows returns the maximum number of rows for which PackAuto packs weights. With more rows the copies saved less
// than 3 % of a training step of the small model of scripts/make_model.py on two cores. bfloat16 copies are half as
// large, and their multiplications take half as long relative to the packing.
func (d *Device) autoRows() int {
	if d.gemm.Rounds() {
		return 256
	}
	return 128
}

// packing is the state of the packed copies that a device keeps.
type packing struct {
	mu    sync.Mutex
	mode  backend.Pack
	limit int64
	used  int64
}

// copied is a packed copy of op(B) of a buffer, or a record that it exceeded the limit.
type copied struct {
	trans bool
	k, n  int
	ready *gemm.Prepacked
	data  *buffer
}

// SetPack sets the mode and memory limit of packed weight copies for programs that are compiled later.
func (d *Device) SetPack(p backend.Pack, limit int64) int64 {
	switch {
	case limit == 0 && p == backend.PackAlways:
		limit = math.MaxInt64
	case limit == 0 && p == backend.PackAuto:
		limit = freeMemory() / 2
	}
	d.packing.mu.Lock()
	defer d.packing.mu.Unlock()
	d.packing.mode, d.packing.limit = p, limit
	return limit
}

func (d *Device) packMode() backend.Pack {
	d.packing.mu.Lock()
	defer d.packing.mu.Unlock()
	return d.packing.mode
}

// packs reports whether matrix multiplications such as c with v would use a packed copy: v is a read-only argument,
// used whole, and not quantised, since quantised weights are meant to save memory.
func (r *run) packs(v ir.Ref, c *gemm.Call) bool {
	switch {
	case v.Space != ir.SpaceArg || v.Offset != 0 || v.Type.DType.Quantized() || r.prog.Args[v.Index].Written:
		return false
	case r.mode == backend.PackNever || r.mode == backend.PackAuto && c.M > r.dev.autoRows():
		return false
	}
	return v.Type.Rank() == 2 && v.Type.Shape[0].Var == 0 && v.Type.Shape[1].Var == 0 && r.dev.gemm.UsesPanels(c)
}

// prepack finds or makes the copy of op(v) [k,n] for a pair of a product.
func (r *run) prepack(p *gemm.Pair, v ir.Ref, n int) {
	p.Ready = nil
	if b := r.buffers[v.Index]; b.readOnly && !b.brief {
		r.dev.packing.mu.Lock()
		defer r.dev.packing.mu.Unlock()
		p.Ready = r.dev.copyOf(b, p, n)
	}
}

// copyOf returns the packed copy of op(B) of a pair, and creates it if the limit allows. The caller holds packing.mu.
func (d *Device) copyOf(b *buffer, p *gemm.Pair, n int) *gemm.Prepacked {
	for i := range b.copies {
		if c := &b.copies[i]; c.trans == p.B.Trans && c.k == p.K && c.n == n {
			return c.ready
		}
	}
	floats := d.gemm.PrepackedFloats(p.B.Elem, p.K, n)
	size := int64(4 * floats)
	c := copied{trans: p.B.Trans, k: p.K, n: n}
	if d.packing.used+size <= d.packing.limit {
		if data, err := allocate(4 * floats); err == nil {
			c.data, c.ready = data, d.gemm.Prepack(view[float32](data.data, floats), p.B, p.K, n)
			d.packing.used += size
		}
	}
	b.copies = append(b.copies, c)
	b.dropCopies = func() {
		d.packing.mu.Lock()
		defer d.packing.mu.Unlock()
		for _, c := range b.copies {
			if c.data != nil {
				d.packing.used -= int64(c.data.Size())
				c.data.Free()
			}
		}
		b.copies = nil
	}
	return c.ready
}

// PackedBytes returns the memory of the copies that the programs would use.
func (d *Device) PackedBytes(mode backend.Pack, programs ...*ir.Program) (int64, error) {
	type key struct {
		name  string
		trans bool
	}
	sizes := map[key]int64{}
	for _, p := range programs {
		if err := supported(p); err != nil {
			return 0, err
		}
		r, _ := newRun(d, p, mode)
		for _, c := range r.copies {
			sizes[key{p.Args[c.arg].Name, c.trans}] = 4 * int64(d.gemm.PrepackedFloats(c.elem, c.k, c.n))
		}
	}
	sum := int64(0)
	for _, n := range sizes {
		sum += n
	}
	return sum, nil
}

// packRequest is a copy that a launch of a program would use.
type packRequest struct {
	arg   int
	trans bool
	elem  gemm.Elem
	k, n  int
}

// requestPack records which weights, the second operands of its pairs, a multiplication of this number of rows would use
// packed.
func (r *run) requestPack(c *gemm.Call, pair int, v ir.Ref) bool {
	if !r.packs(v, c) {
		return false
	}
	p := &c.Pairs[pair]
	r.copies = append(r.copies, packRequest{v.Index, p.B.Trans, p.B.Elem, p.K, c.N})
	return true
}

// Packed returns the current memory of the copies in bytes.
func (d *Device) Packed() int64 {
	d.packing.mu.Lock()
	defer d.packing.mu.Unlock()
	return d.packing.used
}
