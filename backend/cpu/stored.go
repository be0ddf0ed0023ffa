package cpu

import (
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// storedWidth is the minimum row width of multiplications that return bfloat16. Narrower results, such as an
// adapter's h, are small, and each is a sum of many terms.
const storedWidth = 65

// Stores reports whether a kernel reads or writes bfloat16 there: only where
// precision bf16 allows values to be rounded.
func (d *Device) Stores(op ir.Op, attr any, in []ir.Type, at ir.Place, as tensor.DType) bool {
	if d.precision != backend.BF16 || as != tensor.BF16 {
		return false
	}
	switch op {
	case ir.RMSNorm, ir.RoPE:
		return at.Out || at.Index == 0
	case ir.RMSNormGrad:
		return at.Out || at.Index < 2
	case ir.GLU, ir.GLUGrad, ir.Slice, ir.Concat, ir.Unary:
		return true // Storable values are asked for only
	case ir.Binary:
		return storesBinary(attr.(ir.BinaryAttr).Fn, in, at)
	case ir.GatherRows:
		return at.Out || at.Index == 0
	case ir.UpdateRows, ir.ScatterRows:
		return at.Out || at.Index < 2
	case ir.Dropout:
		return at.Out || at.Index == 0
	case ir.LoRADown:
		return !at.Out && at.Index < 2
	case ir.LoRADownGrad:
		return !at.Out && at.Index == 1
	case ir.LoRADownInputGrad:
		return at.Out || at.Index == 1
	case ir.LinearCrossEntropy:
		return !at.Out && at.Index < 2
	case ir.LinearCrossEntropyGrad:
		return at.Index == 0 || !at.Out && at.Index == 1
	case ir.Attention:
		return at.Index == 0 || !at.Out && at.Index < 3
	case ir.AttentionGrad:
		return !at.Out && at.Index < 5
	case ir.Gemm:
		return storesGemm(attr.(ir.GemmAttr), in, at)
	}
	return false
}

// storesGemm reports whether a Gemm may store the operand: matrices of a single multiplication and its addend when
// read, and the result if rows are long.
func storesGemm(a ir.GemmAttr, in []ir.Type, at ir.Place) bool {
	whole := in[0].Rank() == 2
	switch {
	case at.Out:
		return whole && outWidth(a, in) >= storedWidth
	case at.Index < 2*a.N:
		return in[at.Index].DType == tensor.F32
	}
	return whole && at.Index == a.C()
}

// outWidth returns the row width of a multiplication, 0 if it is known at run time only.
func outWidth(a ir.GemmAttr, in []ir.Type) int {
	shape := in[1].Shape
	width := shape[len(shape)-1]
	if a.P[0].TB {
		width = shape[len(shape)-2]
	}
	if width.Var != 0 {
		return 0
	}
	return width.N
}

// values is a value of f32, in memory as such or as bfloat16.
type values struct {
	f32  []float32
	bf16 []byte
	n    int
}

func (r *run) values(v ir.Ref) values {
	n := v.Type.Shape.Elements(r.dims)
	if v.Store == tensor.Invalid {
		return values{f32: r.f32(v), n: n}
	}
	return values{bf16: r.bytes(v), n: n}
}

// in returns n elements from i on: in place, or widened into m.
func (x *values) in(i, n int, m *wideScratch) []float32 {
	if x.bf16 == nil {
		return x.f32[i : i+n]
	}
	y := m.alloc(n)
	x.widen(y, i)
	return y
}

// widen copies elements from i on to dst.
func (x *values) widen(dst []float32, i int) {
	if x.bf16 == nil {
		copy(dst, x.f32[i:])
		return
	}
	// The lengths fit, and the type is a number.
	_ = tensor.ToFloat32(dst, x.bf16[2*i:2*(i+len(dst))], tensor.BF16)
}

// out returns the memory to compute n elements from i on. Call put afterwards to round them.
func (x *values) out(i, n int, m *wideScratch) []float32 {
	if x.bf16 == nil {
		return x.f32[i : i+n]
	}
	return m.alloc(n)
}

// store rounds computed elements and stores them at i. It does nothing for float32, which is computed in place.
func (x *values) store(i int, y []float32) {
	if x.bf16 != nil {
		_ = tensor.FromFloat32(x.bf16[2*i:2*(i+len(y))], y, tensor.BF16)
	}
}

// clear makes n elements from i on 0.
func (x *values) clear(i, n int) {
	if x.bf16 == nil {
		clear(x.f32[i : i+n])
		return
	}
	clear(x.bf16[2*i : 2*(i+n)])
}

// move copies n elements of src from j on to x at i.
func (x *values) move(i int, src *values, j, n int) {
	switch {
	case x.bf16 != nil && src.bf16 != nil:
		copy(x.bf16[2*i:2*(i+n)], src.bf16[2*j:])
	case x.bf16 != nil:
		x.store(i, src.f32[j:j+n])
	default:
		src.widen(x.f32[i:i+n], j)
	}
}

// wideScratch is the memory in which one worker widens values, a few rows or a block of elements at a time. A nil wideScratch
// belongs to a program without narrow values.
type wideScratch struct{ all, free []float32 }

// storedElements is the number of elements that are widened at a time if rows do not matter.
const storedElements = 1024

// reset frees all of the memory, for at most n elements, and returns the number of elements to
// process at a time.
func (m *wideScratch) reset(n int) int {
	if m == nil {
		return n
	}
	m.free = m.all
	return min(n, storedElements)
}

func (m *wideScratch) alloc(n int) (x []float32) {
	x, m.free = m.free[:n:n], m.free[n:]
	return x
}

// reserveRoom reserves memory to widen operands of this number of elements, for launches with narrow operands.
func (r *run) reserveRoom(l *ir.Launch, operands, elements int) {
	for _, refs := range [...][]ir.Ref{l.In, l.Out} {
		for _, v := range refs {
			if v.Store != tensor.Invalid {
				r.need.wide = max(r.need.wide, operands*elements)
			}
		}
	}
}

// makeRooms assigns memory to the workers' rooms.
func (r *run) makeRooms(memory []float32) {
	if r.need.wide == 0 {
		return
	}
	r.rooms = make([]wideScratch, r.dev.pool.Workers())
	for i := range r.rooms {
		r.rooms[i].all, memory = memory[:r.need.wide], memory[r.need.wide:]
	}
}

// elementsIn calls f like elements, with a room for each task.
func (r *run) elementsIn(n int, f func(lo, hi int, m *wideScratch)) { r.spreadIn(n, chunk, f) }

// rowsIn calls f like rows, with a room for each task.
func (r *run) rowsIn(rows, cols int, f func(lo, hi int, m *wideScratch)) {
	r.spreadIn(rows, max(1, chunk/max(1, cols)), f)
}

func (r *run) spreadIn(n, size int, f func(lo, hi int, m *wideScratch)) {
	switch r.partIn = f; {
	case r.rooms == nil:
		r.spread(n, size, r.noRoom)
	case n > size:
		r.count, r.size = n, size
		r.dev.pool.RunWorker((n+size-1)/size, r.taskIn)
	case n > 0:
		f(0, n, &r.rooms[0])
	}
}

// storedUpdate returns an updateKernel for rows, table and result of different dtypes in memory.
func storedUpdate(r *run, l *ir.Launch) func() error {
	return func() error {
		table, rows, dst := r.values(l.In[0]), r.values(l.In[1]), r.values(l.Out[0])
		width := dst.n / max(1, r.axis(l.Out[0], 0))
		off := int(r.i32(l.In[2])[0])
		if off < 0 || off*width+rows.n > dst.n {
			return fmt.Errorf("%d rows at %d do not fit a table of %d", r.axis(l.In[1], 0), off, r.axis(l.Out[0], 0))
		}
		if !l.In[0].Same(l.Out[0]) {
			dst.move(0, &table, 0, dst.n)
		}
		dst.move(off*width, &rows, 0, rows.n)
		return nil
	}
}
