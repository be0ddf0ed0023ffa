//go:build cuda && linux

package cuda

import (
	"fmt"
	"math"
	"slices"

	"gorgonia.org/cu"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/driver"
	"github.com/lorafuse/lorafuse/ir"
)

// family is what the device can do for one operation.
type family struct {
	// prepare takes the kernels that a launch of a program is made of, once,
	// and returns what sets their sizes and parameters before each run. Sizes
	// are those of the largest dimensions while it prepares.
	prepare func(c *compiler, l *ir.Launch) (step, error)
	// takes tells which composites of the operation it runs; nil means all.
	takes func(d *Device, attr any, in []ir.Type) bool
}

// step fills in the kernels of a launch for the sizes and addresses of a run.
// It allocates nothing and calls nothing of the driver.
type step func(r *run)

// families has all primitives, and the composites that need not be decomposed.
var families = map[ir.Op]family{
	ir.Const: {prepare: prepareConst}, ir.Iota: {prepare: prepareIota}, ir.Philox: {prepare: preparePhilox},
	ir.Cast: {prepare: prepareCast}, ir.Unary: {prepare: prepareUnary}, ir.Binary: {prepare: prepareBinary},
	ir.Compare: {prepare: prepareCompare}, ir.Where: {prepare: prepareWhere},
	ir.Reduce: {prepare: prepareReduce}, ir.ArgMax: {prepare: prepareArgMax},
	ir.Gemm:     {prepare: prepareGemm},
	ir.LoRADown: {prepareLoRADown, takesOneKey(2)}, ir.LoRADownGrad: {prepareLoRADownGrad, takesOneKey(2)},
	ir.Reshape: {prepare: prepareCopy}, ir.Detach: {prepare: prepareCopy}, ir.Transpose: {prepare: prepareTranspose},
	ir.Broadcast: {prepare: prepareBroadcast}, ir.Slice: {prepare: prepareSlice}, ir.Concat: {prepare: prepareConcat},
	ir.Attention: {prepareAttention, takesAttention}, ir.AttentionGrad: {prepareAttentionGrad, takesAttention},
	ir.GatherRows: {prepare: prepareGather}, ir.ScatterAddRows: {prepare: prepareScatter}, ir.UpdateRows: {prepare: prepareUpdate},

	ir.RMSNorm: {prepare: prepareRMSNorm}, ir.RMSNormGrad: {prepare: prepareRMSNorm}, ir.Softmax: {prepare: prepareSoftmax},
	ir.RoPETable: {prepare: prepareRoPETable}, ir.RoPE: {prepare: prepareRoPE},
	ir.GLU: {prepare: prepareGLU}, ir.GLUGrad: {prepare: prepareGLU}, ir.Dropout: {prepareDropout, takesOneKey(1)},
	ir.CrossEntropy: {prepare: prepareCrossEntropy}, ir.CrossEntropyGrad: {prepare: prepareCrossEntropyGrad},
	ir.LinearCrossEntropy: {prepare: prepareHead, takes: takesHead}, ir.LinearCrossEntropyGrad: {prepare: prepareHead, takes: takesHead},
	ir.SumSquares: {prepare: prepareSumSquares}, ir.AdamW: {prepare: prepareAdamW},
}

// takesOneKey claims dropout whose key, an operand, is one for all elements. With a
// key for each row its words are drawn by themselves.
func takesOneKey(operand int) func(*Device, any, []ir.Type) bool {
	return func(_ *Device, _ any, in []ir.Type) bool { return in[operand].Rank() == 1 }
}

// supported finds a launch that there are no kernels for.
func supported(p *ir.Program) error {
	if r, ok := p.Narrowed(); ok {
		return fmt.Errorf("cuda: %w: %v: values lie in memory as they are computed", backend.ErrUnsupported, r)
	}
	for i := range p.Launches {
		if _, ok := families[p.Launches[i].Op]; !ok {
			return fmt.Errorf("cuda: %w: %v", backend.ErrUnsupported, p.Launches[i].Op)
		}
	}
	return nil
}

// compiler prepares the launches of a program.
type compiler struct {
	dev     *Device
	prog    *ir.Program
	dims    []int // the largest
	launch  int   // the one that is prepared
	kernels []*kernel
	reports map[int]report
	merged  map[int]bool // launches that run as a part of one before them
	scratch int
}

// kernel is one launch of a kernel in every run.
type kernel struct {
	*driver.Launch // from when all are known
	function       cu.Function
	threads        [3]uint32
	shared         int
}

// kernel takes the kernel of a name out of a file of kernels/cuda, for blocks of
// so many threads.
func (c *compiler) kernel(file, name string, threads int) (*kernel, error) {
	k := &kernel{threads: [3]uint32{uint32(threads), 1, 1}}
	var err error
	if k.function, err = c.dev.images.function(file, name); err != nil {
		return nil, err
	}
	c.kernels = append(c.kernels, k)
	return k, nil
}

// share gives the kernel's blocks so many bytes of dynamic shared memory. It is
// called while a launch is prepared.
func (k *kernel) share(bytes int) error {
	k.shared = bytes
	if bytes <= 48<<10 {
		return nil
	}
	return driver.SetMaxShared(k.function, bytes)
}

// reserve gives the launch under preparation memory of its own for each run:
// its place in the scratch memory, which run.scratch gives the address of.
// Launches run one after the other and share it.
func (c *compiler) reserve(bytes int) {
	c.scratch = max(c.scratch, bytes)
}

// report explains what a kernel has found wrong: a place and a value.
type report func(r *run, where, value int) error

// refuse is how a launch says what its kernels found wrong.
func (c *compiler) refuse(f report) { c.reports[c.launch] = f }

// unsupported is an error for a launch that there is no kernel for.
func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %s", backend.ErrUnsupported, fmt.Sprintf(format, args...))
}

// skip leaves the kernel out of this run.
func (k *kernel) skip() { k.Grid[0] = 0 }

// grid sets the number of blocks, and begins the list of parameters.
func (k *kernel) grid(x, y, z int) *kernel {
	if x <= 0 || y <= 0 || z <= 0 {
		x = 0
	}
	k.Grid = [3]uint32{uint32(x), uint32(max(y, 1)), uint32(max(z, 1))}
	k.Count = 0
	return k
}

func (k *kernel) cell(x uint64) *kernel {
	k.Cells[k.Count] = x
	k.Count++
	return k
}

// pointer adds a parameter that is an address.
func (k *kernel) pointer(p cu.DevicePtr) *kernel { return k.cell(uint64(p)) }

// int adds a parameter of type int or unsigned.
func (k *kernel) int(x int) *kernel { return k.cell(uint64(uint32(x))) }

// long adds a parameter of type long long.
func (k *kernel) long(x int) *kernel { return k.cell(uint64(x)) }

// float adds a parameter of type float.
func (k *kernel) float(x float32) *kernel { return k.cell(uint64(math.Float32bits(x))) }

// perThread is how many elements a thread of an elementwise kernel takes.
const perThread = 4

// elementThreads is the number of threads of a block of elementwise kernels.
const elementThreads = 256

// elements sets the blocks of an elementwise kernel on n elements.
func (k *kernel) elements(n int) *kernel {
	return k.grid(blocks(n, elementThreads*perThread), 1, 1)
}

// blocks is how many parts of a size n needs.
func blocks(n, size int) int { return (n + size - 1) / size }

// run is what a program runs on: where its values lie, and how large they are.
type run struct {
	arena   cu.DevicePtr
	scratch cu.DevicePtr
	args    []cu.DevicePtr
	dims    []int
	trap    cu.DevicePtr
}

// at is where a value lies.
func (r *run) at(v ir.Ref) cu.DevicePtr {
	if v.Space == ir.SpaceArg {
		return r.args[v.Index] + cu.DevicePtr(v.Offset)
	}
	return r.arena + cu.DevicePtr(v.Offset)
}

// count is the number of elements of a value.
func (r *run) count(v ir.Ref) int { return v.Type.Shape.Elements(r.dims) }

// axis is the size of axis i of a value.
func (r *run) axis(v ir.Ref, i int) int { return v.Type.Shape[i].Resolve(r.dims) }

// matrix gives the rows and columns of a value whose outer axes are joined.
func (r *run) matrix(v ir.Ref) (rows, cols int) {
	cols = v.Type.Last().Resolve(r.dims)
	if cols == 0 {
		return 0, 0
	}
	return r.count(v) / cols, cols
}

// around gives the sizes before, of and after an axis.
func (r *run) around(v ir.Ref, axis int) (outer, n, inner int) {
	outer, n, inner = 1, r.axis(v, axis), 1
	for i := range v.Type.Shape {
		switch {
		case i < axis:
			outer *= r.axis(v, i)
		case i > axis:
			inner *= r.axis(v, i)
		}
	}
	return outer, n, inner
}

// same tells whether two values lie at the same place.
func (r *run) same(a, b ir.Ref) bool { return r.at(a) == r.at(b) }

// compile prepares all launches.
func (d *Device) compile(p *ir.Program) (c *compiler, steps []prepared, err error) {
	c = &compiler{dev: d, prog: p, dims: p.MaxDims(), reports: map[int]report{}, merged: map[int]bool{}}
	steps = make([]prepared, len(p.Launches))
	for i := range p.Launches {
		l := &p.Launches[i]
		c.launch = i
		from := len(c.kernels)
		s, err := families[l.Op].prepare(c, l)
		if err != nil {
			return nil, nil, fmt.Errorf("cuda: %v: %w", l.Op, err)
		}
		steps[i] = prepared{s, from, len(c.kernels)}
	}
	c.kernels = slices.Clip(c.kernels)
	return c, steps, nil
}

// prepared is a launch: its step, and the kernels that it fills in.
type prepared struct {
	fill     step
	from, to int
}
