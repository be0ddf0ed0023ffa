package gpu

import (
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/ir"
)

// Target is what programs are planned for.
type Target struct {
	Precision backend.Precision // F32 or BF16
	Limits
	Sizes
}

// Limits are what a device sets to the blocks of kernels; 0 means that it is not
// known, and shows when kernels are launched.
type Limits struct {
	Threads int // of a block
	Shared  int // bytes of shared memory of a block
	// Declared: kernels declare the shared memory of their blocks in their sources, and
	// launches ask for none.
	Declared bool
}

// Sizes decide between kernels. What is summed in which order depends on them.
type Sizes struct {
	// DecodeQueries is the number of queries of attention up to which each of them has
	// blocks of its own.
	DecodeQueries int
	// AttentionTile is how many queries and how many keys a block of attention has at a
	// time, for heads of any size; 0 for as many as the kernels of CUDA have.
	AttentionTile int
	// The logits that exist at one time are at most LogitBytes, or those of
	// LogitRows rows where the vocabulary is large: the weights are read once for
	// each stretch of rows, and with fewer of them memory could not keep up with the
	// tensor cores.
	LogitBytes, LogitRows int
	// AdamWTensors is how many tensors a launch of AdamW takes, at most 10: as many as its
	// kernel declares.
	AdamWTensors int
	// LargeTiles: products of many rows and columns are computed by tiles of 128 by 128.
	LargeTiles bool
	// ExactSums: a sum of products is one launch in float32 too.
	ExactSums bool
}

// DefaultSizes are the sizes for GPUs of NVIDIA.
func DefaultSizes() Sizes {
	return Sizes{DecodeQueries: 32, LogitBytes: 128 << 20, LogitRows: 256, AdamWTensors: 10, LargeTiles: true}
}

// MetalTarget is what programs are planned for on Apple GPUs, whose kernels, those of
// kernels/metal, declare their memory of a threadgroup themselves. The logits that exist
// at one time are fewer, since they lie in the memory that the host computes in.
func MetalTarget(p backend.Precision, threads int) Target {
	s := DefaultSizes()
	s.AttentionTile = 32
	s.LogitBytes, s.LogitRows = 64<<20, 128
	s.AdamWTensors = 7 // a kernel has 31 buffers
	s.LargeTiles, s.ExactSums = false, true
	return Target{Precision: p, Limits: Limits{Threads: threads, Declared: true}, Sizes: s}
}

// family is what there is for one operation.
type family struct {
	// prepare takes the kernels that a launch of a program is made of, once,
	// and returns what sets their sizes and arguments before each run. Sizes
	// are those of the largest dimensions while it prepares.
	prepare func(c *compiler, l *ir.Launch) (step, error)
	// takes tells which composites of the operation are run; nil means all.
	takes func(attr any, in []ir.Type) bool
}

// step fills in the kernels of a launch for the sizes and addresses of a run.
// It allocates nothing.
type step func(r *Run)

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

	ir.RowsGemm: {prepareRows, takesRows},

	ir.RMSNorm: {prepare: prepareRMSNorm}, ir.RMSNormGrad: {prepare: prepareRMSNorm}, ir.Softmax: {prepare: prepareSoftmax},
	ir.RoPETable: {prepare: prepareRoPETable}, ir.RoPE: {prepare: prepareRoPE},
	ir.GLU: {prepareGLU, takesGLU}, ir.GLUGrad: {prepareGLU, takesGLU}, ir.Dropout: {prepareDropout, takesOneKey(1)},
	ir.CrossEntropy: {prepareCrossEntropy, takesSum}, ir.CrossEntropyGrad: {prepare: prepareCrossEntropyGrad},
	ir.LinearCrossEntropy: {prepare: prepareHead, takes: takesHead}, ir.LinearCrossEntropyGrad: {prepare: prepareHead, takes: takesHead},
	ir.SumSquares: {prepare: prepareSumSquares}, ir.AdamW: {prepare: prepareAdamW},
}

// takesOneKey claims dropout whose key, an operand, is one for all elements. With a
// key for each row its words are drawn by themselves.
func takesOneKey(operand int) func(any, []ir.Type) bool {
	return func(_ any, in []ir.Type) bool { return in[operand].Rank() == 1 }
}

// Supports reports whether there are kernels for an operation.
func Supports(op ir.Op, attr any, in []ir.Type) bool {
	f, ok := families[op]
	return ok && (f.takes == nil || f.takes(attr, in))
}

// Supported is why a program cannot be planned, whatever the device: values that do
// not lie as they are computed, or a launch that there are no kernels for. Errors:
// backend.ErrUnsupported.
func Supported(p *ir.Program) error {
	if r, ok := p.Narrowed(); ok {
		return fmt.Errorf("%w: %v: values lie in memory as they are computed", backend.ErrUnsupported, r)
	}
	for i := range p.Launches {
		if _, ok := families[p.Launches[i].Op]; !ok {
			return fmt.Errorf("%w: %v", backend.ErrUnsupported, p.Launches[i].Op)
		}
	}
	return nil
}

// Plan is what a device launches for a program.
type Plan struct {
	Kernels []*Kernel // in the order in which they run
	Scratch int       // bytes that launches need in passing, beside arena and arguments

	prog    *ir.Program
	steps   []prepared
	reports map[int]report
}

// prepared is a launch of a program: its step, and the kernels that it fills in.
type prepared struct {
	fill     step
	from, to int
}

// report explains what a kernel has found wrong: a place and a value.
type report func(r *Run, where, value int) error

// New plans the launches of p. Errors: backend.ErrUnsupported.
func New(p *ir.Program, t Target) (*Plan, error) {
	if err := Supported(p); err != nil {
		return nil, err
	}
	c := &compiler{Plan: &Plan{prog: p, steps: make([]prepared, len(p.Launches)), reports: map[int]report{}}, target: t, dims: p.MaxDims(), merged: map[int]bool{}}
	for i := range p.Launches {
		l := &p.Launches[i]
		c.launch = i
		from := len(c.Kernels)
		s, err := families[l.Op].prepare(c, l)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", l.Op, err)
		}
		c.steps[i] = prepared{s, from, len(c.Kernels)}
	}
	c.Kernels = slices.Clip(c.Kernels)
	return c.Plan, nil
}

// Scratch is the memory in bytes that the launches of programs keep in passing, beside
// arenas and arguments: that of each program is its own. Errors: backend.ErrUnsupported.
func Scratch(t Target, programs ...*ir.Program) (sum int64, err error) {
	for _, p := range programs {
		plan, err := New(p, t)
		if err != nil {
			return 0, err
		}
		sum += int64(plan.Scratch)
	}
	return sum, nil
}

// Bind gives each kernel the launch that it is filled into.
func (p *Plan) Bind(launches []Launch) {
	for i, k := range p.Kernels {
		k.Launch = &launches[i]
		k.Launch.Block, k.Launch.Shared = k.block, uint32(k.shared)
	}
}

// Len is the number of the program's launches.
func (p *Plan) Len() int { return len(p.steps) }

// Fill sets sizes and arguments of all kernels of launch i of the program.
func (p *Plan) Fill(i int, r *Run) { p.steps[i].fill(r) }

// op is the operation of launch i of the program.
func (p *Plan) op(i int) ir.Op { return p.prog.Launches[i].Op }

// Range is which kernels launch i of the program has: none where it runs as a part
// of one before it.
func (p *Plan) Range(i int) (from, to int) { return p.steps[i].from, p.steps[i].to }

// Of is the launch of the program that a kernel belongs to.
func (p *Plan) Of(kernel int) int {
	return slices.IndexFunc(p.steps, func(s prepared) bool { return kernel < s.to })
}

// wrong is the error of a kernel of launch i of the program that has reported a
// place and a value.
func (p *Plan) wrong(r *Run, i, where, value int) error {
	f := p.reports[i]
	if f == nil {
		return fmt.Errorf("launch %d reports %d at %d", i, value, where)
	}
	return fmt.Errorf("%v: %w", p.op(i), f(r, where, value))
}

// compiler plans the launches of a program.
type compiler struct {
	*Plan
	target Target
	dims   []int        // the largest
	launch int          // the one that is planned
	merged map[int]bool // launches that run as a part of one before them
}

// kernel takes the kernel of a name out of a file of kernels/cuda, for blocks of
// so many threads.
func (c *compiler) kernel(file, name string, threads int) (*Kernel, error) {
	k := &Kernel{File: file, Name: name, block: [3]uint32{uint32(threads), 1, 1}}
	if most := c.target.Threads; most > 0 && threads > most {
		return nil, unsupported("kernel %s has blocks of %d threads, the device of at most %d", name, threads, most)
	}
	c.Kernels = append(c.Kernels, k)
	return k, nil
}

// share gives the kernel's blocks so many bytes of dynamic shared memory. It is
// called while a launch is planned.
func (c *compiler) share(k *Kernel, bytes int) error {
	if c.target.Declared {
		return nil
	}
	if most := c.target.Shared; most > 0 && bytes > most {
		return unsupported("kernel %s has blocks of %d bytes of shared memory, the device of at most %d", k.Name, bytes, most)
	}
	k.shared = bytes
	return nil
}

// reserve gives the launch that is planned memory of its own for each run:
// its place in the scratch memory. Launches run one after the other and share it.
func (c *compiler) reserve(bytes int) { c.Scratch = max(c.Scratch, bytes) }

// refuse is how a launch says what its kernels found wrong.
func (c *compiler) refuse(f report) { c.reports[c.launch] = f }

// unsupported is an error for a launch that there is no kernel for.
func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %s", backend.ErrUnsupported, fmt.Sprintf(format, args...))
}
