package gpu

import (
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// Target describes the device that programs are planned for.
type Target struct {
	Precision backend.Precision // F32 or BF16
	Limits
	Sizes
}

// Limits are a device's limits on kernel blocks. Zero means unknown; a violation then appears only at launch.
type Limits struct {
	Threads int // of a block
	Shared  int // bytes of shared memory of a block
	// Declared: kernels declare the shared memory of their blocks in their sources, and
	// launches ask for none.
	Declared bool
}

// holds reports whether blocks may have the given number of bytes of shared memory.
func (l *Limits) holds(bytes int) bool { return l.Shared == 0 || bytes <= l.Shared }

// Sizes select between kernels. The order of summation depends on them.
type Sizes struct {
	// DecodeQueries is the number of queries of attention up to which each of them has
	// blocks of its own.
	DecodeQueries int
	// QueryTile is the number of elements of queries that a block of attention_queries has: of all heads that it
	// reads a key for.
	QueryTile int
	// AttentionTile is the number of queries, and of keys, per attention tile, for all head sizes. Zero means the
	// sizes of the CUDA kernels.
	AttentionTile int
	// At most LogitBytes of logits exist at a time, or LogitRows rows if the vocabulary is large. The weights are read
	// once per group of rows; with smaller groups, memory bandwidth could not keep up with the tensor cores.
	LogitBytes, LogitRows int
	// AdamWTensors is the maximum number of tensors per AdamW launch if there are no tables, at most the 7 that its
	// kernel declares.
	AdamWTensors int
	// Tables: launches over many tensors read their addresses from a table in memory.
	Tables bool
	// TensorRows: products that select their matrix by row run on tensor cores under bf16.
	TensorRows bool
	// GroupedProducts: up to three independent sums of products are one launch.
	GroupedProducts bool
	// ExactSums: a sum of products is one launch in float32 too.
	ExactSums bool
	Thresholds
}

// DefaultSizes returns the sizes for NVIDIA GPUs.
func DefaultSizes() Sizes {
	return Sizes{DecodeQueries: 32, QueryTile: 2048, LogitBytes: 128 << 20, LogitRows: 256, Tables: true, TensorRows: true, Thresholds: ThresholdsOf(backend.CUDA)}
}

// MetalTarget returns the target for Apple GPUs that read addresses from tables; others set Tables to false. The
// kernels in kernels/metal declare their threadgroup memory themselves.
func MetalTarget(p backend.Precision, threads int) Target {
	s := DefaultSizes()
	s.AttentionTile, s.QueryTile = 32, 1024
	s.LogitBytes, s.LogitRows = 64<<20, bulkLogitRows
	s.AdamWTensors = 7 // a kernel has 31 buffers
	s.TensorRows, s.GroupedProducts, s.ExactSums = false, true, true
	s.Thresholds = ThresholdsOf(backend.Metal)
	return Target{Precision: p, Limits: Limits{Threads: threads, Declared: true}, Sizes: s}
}

// family implements one operation.
type family struct {
	// prepare selects the kernels for a launch of a program, once. The returned step sets their sizes and arguments
	// before each run. While prepare runs, the compiler's sizes are the largest ones.
	prepare func(c *compiler, l *ir.Launch) (step, error)
	// takes reports whether an operation with these attributes is supported; nil means that all are.
	takes func(attr any, in []ir.Type) bool
	// stores reports whether the kernels read or write an f32 operand as bf16; nil means that they never do.
	stores func(attr any, in []ir.Type, at ir.Place) bool
}

// step fills in the kernels of a launch for the sizes and addresses of a run.
// It allocates nothing.
type step func(r *Run)

// families has all primitives, and the composites that need not be decomposed.
var families = map[ir.Op]family{
	ir.Const: {prepare: prepareConst}, ir.Iota: {prepare: prepareIota}, ir.Philox: {prepare: preparePhilox},
	ir.Cast: {prepare: prepareCast}, ir.Dequantize: {prepare: prepareDequantize}, ir.Unary: {prepare: prepareUnary, stores: storesUnary}, ir.Binary: {prepare: prepareBinary, stores: storesAll},
	ir.Compare: {prepare: prepareCompare}, ir.Where: {prepare: prepareWhere},
	ir.Reduce: {prepare: prepareReduce}, ir.ArgMax: {prepare: prepareArgMax},
	ir.Gemm:     {prepare: prepareGemm, takes: takesGemm, stores: storesGemm},
	ir.LoRADown: {prepare: prepareDown, takes: takesOneKey(2), stores: storesDown}, ir.LoRADownGrad: {prepare: prepareDown, takes: takesOneKey(2), stores: storesDownGrad},
	ir.LoRADownInputGrad: {prepare: prepareLoRADownInputGrad, takes: takesInputGrad, stores: storesInputGrad},

	ir.Reshape: {prepare: prepareCopy, stores: storesAll}, ir.Detach: {prepare: prepareCopy, stores: storesAll}, ir.Transpose: {prepare: prepareTranspose, stores: storesAll},
	ir.Broadcast: {prepare: prepareBroadcast, stores: storesAll}, ir.Slice: {prepare: prepareSlice, stores: storesAll}, ir.Concat: {prepare: prepareConcat, stores: storesAll},
	ir.Attention:     {prepare: prepareAttention, takes: takesAttention, stores: storesAttention},
	ir.AttentionGrad: {prepare: prepareAttentionGrad, takes: takesAttentionGrad, stores: storesAttentionGrad},
	ir.GatherRows:    {prepare: prepareGather, stores: storesAll}, ir.ScatterAddRows: {prepare: prepareScatter}, ir.UpdateRows: {prepare: prepareUpdate, stores: storesAll},
	ir.ScatterRows: {prepare: prepareScatterRows, stores: storesTable},

	ir.RowsGemm: {prepare: prepareRows, takes: takesRows, stores: storesRows}, ir.RowsGemmGrad: {prepare: prepareRowsGrad, stores: storesRowsGrad},

	ir.RMSNorm: {prepare: prepareRMSNorm, stores: storesFirst(1)}, ir.RMSNormGrad: {prepare: prepareRMSNorm, stores: storesNormGrad}, ir.Softmax: {prepare: prepareSoftmax, stores: storesAll},
	ir.LayerNorm: {prepare: prepareLayerNorm, stores: storesFirst(1)}, ir.LayerNormGrad: {prepare: prepareLayerNorm, stores: storesFirst(2)},
	ir.GroupNorm: {prepare: prepareGroupNorm, stores: storesFirst(1)}, ir.Conv2D: {prepare: prepareConv2D, stores: storesFirst(1)},
	ir.Activate: {prepare: prepareActivate, takes: takesActivate, stores: storesAll}, ir.ActivateGrad: {prepare: prepareActivate, takes: takesActivate, stores: storesAll},
	ir.RoPETable: {prepare: prepareRoPETable}, ir.RoPE: {prepare: prepareRoPE, stores: storesFirst(1)},
	ir.GLU: {prepare: prepareGLU, takes: takesGLU, stores: storesAll}, ir.GLUGrad: {prepare: prepareGLU, takes: takesGLU, stores: storesAll},
	ir.Dropout:      {prepare: prepareDropout, takes: takesOneKey(1), stores: storesAll},
	ir.CrossEntropy: {prepare: prepareCrossEntropy}, ir.CrossEntropyGrad: {prepare: prepareCrossEntropyGrad},
	ir.LinearCrossEntropy: {prepare: prepareHead, takes: takesHead, stores: storesHead}, ir.LinearCrossEntropyGrad: {prepare: prepareHead, takes: takesHead, stores: storesHead},
	ir.TopK:       {prepare: prepareTopK},
	ir.SumSquares: {prepare: prepareSumSquares}, ir.AdamW: {prepare: prepareAdamW}, ir.AdamW8: {prepare: prepareAdamW8},
}

// takesOneKey accepts dropout whose key, an operand, is the same for all elements. Random words with a key per row are
// generated separately.
func takesOneKey(operand int) func(any, []ir.Type) bool {
	return func(_ any, in []ir.Type) bool { return in[operand].Rank() == 1 }
}

// Supports reports whether there are kernels for an operation.
func Supports(op ir.Op, attr any, in []ir.Type) bool {
	f, ok := families[op]
	return ok && (f.takes == nil || f.takes(attr, in))
}

// Supported returns an error if no device can run a program. Then a launch has no kernel, or one of its operands is
// stored in a type that its kernels do not take. Errors: backend.ErrUnsupported.
func Supported(p *ir.Program) error {
	for i := range p.Launches {
		if _, ok := families[p.Launches[i].Op]; !ok {
			return fmt.Errorf("%w: %v", backend.ErrUnsupported, p.Launches[i].Op)
		}
		if err := checkStored(&p.Launches[i]); err != nil {
			return err
		}
	}
	return nil
}

// Plan holds the kernel launches of a program. Some launches of the program are fused into others.
type Plan struct {
	Kernels []*Kernel // in the order in which they run
	Scratch int       // temporary bytes for launches, in addition to arena and arguments
	// TableBytes is the size of the tables that the host writes for each run.
	TableBytes int
	// Addresses is the number of addresses in these tables.
	Addresses int

	prog    *ir.Program
	steps   []prepared
	reports map[int]report
	passing int // bytes of the scratch memory that launches share; values of hold follow
	kept    int // bytes of these values
	tables  []*table
	layers  *layerTables // nil if there are none
}

// prepared is a launch of a program: its step, and the kernels that it fills in.
type prepared struct {
	fill     step
	from, to int
	behind   int // the number of launches from the one that computes this one, or 0
	saved    []saving
}

// saving returns the bytes that joined launches need not read and write in a run.
type saving func(r *Run) (read, written int)

// report explains an error that a kernel detected, given its place and value.
type report func(r *Run, where, value int) error

// New plans the launches of p. Errors: backend.ErrUnsupported.
func New(p *ir.Program, t Target) (*Plan, error) {
	if err := Supported(p); err != nil {
		return nil, err
	}
	t.VectorRows, t.ThinRows = min(t.VectorRows, vectorMost), min(t.ThinRows, thinMost)
	p = gather(fuse(p), &t)
	c := &compiler{Plan: &Plan{prog: p, reports: map[int]report{}}, target: t, dims: p.MaxDims(), merged: map[int]bool{}, sums: map[int][]ir.Ref{}, joined: map[int]*vector{}, gated: map[int]*gated{}, narrows: map[int]*narrowLaunch{}}
	p = c.startFromAdapters()
	c.prog, c.steps = p, make([]prepared, len(p.Launches))
	for i := range p.Launches {
		l := &p.Launches[i]
		c.launch = i
		from := len(c.Kernels)
		prepare := families[l.Op].prepare
		switch {
		case c.merged[i]:
			prepare = nothing
		case c.sums[i] != nil:
			prepare = prepareSquares
		}
		s, err := prepare(c, l)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", l.Op, err)
		}
		c.steps[i].fill, c.steps[i].from, c.steps[i].to = s, from, len(c.Kernels)
	}
	c.Kernels = slices.Clip(c.Kernels)
	if t := c.layers; t != nil {
		t.from, t.at = c.TableBytes, c.hold(8*t.words)
		c.TableBytes += 8 * t.words
	}
	if c.passing = c.Scratch; c.kept > 0 {
		c.passing = scratchBytes(c.Scratch)
		c.Scratch = c.passing + c.kept
	}
	return c.Plan, nil
}

// Scratch returns the temporary memory of the programs in bytes, in addition to their arenas and arguments. Programs
// do not share it. Errors: backend.ErrUnsupported.
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

// Bind assigns each kernel the launch to fill in.
func (p *Plan) Bind(launches []Launch) {
	for i, k := range p.Kernels {
		k.Launch = &launches[i]
		k.Launch.Block, k.Launch.Shared = k.block, uint32(k.shared)
	}
}

// Len returns the number of launches in the program.
func (p *Plan) Len() int { return len(p.steps) }

// Fill sets sizes and arguments of all kernels of launch i of the program.
func (p *Plan) Fill(i int, r *Run) {
	r.held = p.held(r, 0)
	p.steps[i].fill(r)
}

// Range returns the range of kernels of launch i of the program. It is empty if the launch is fused into an earlier
// one.
func (p *Plan) Range(i int) (from, to int) { return p.steps[i].from, p.steps[i].to }

// Owner returns the launch of the program whose kernels compute launch i, mostly i itself. A launch that has no kernels
// and was not moved belongs to the last one before it that has some.
func (p *Plan) Owner(i int) int {
	if n := p.steps[i].behind; n > 0 {
		return i - n
	}
	for i > 0 && p.steps[i].from == p.steps[i].to {
		i--
	}
	return i
}

// Cost returns the number of floating-point operations of launch i of the program, and the bytes of its operands, for
// the run-time values dims.
func (p *Plan) Cost(i int, dims []int) (flops, bytes int) { return p.prog.Launches[i].Cost(dims) }

// Traffic returns the number of bytes that launch i of the program reads and writes in a run. Joined
// launches share operands or pass them on in registers, which saves bytes.
func (p *Plan) Traffic(i int, r *Run) (read, written int) {
	read, written = p.prog.Launches[i].Traffic(r.Dims)
	for _, saved := range p.steps[i].saved {
		x, y := saved(r)
		read, written = read-x, written-y
	}
	return read, written
}

// MaxDims returns the largest sizes of the program's dimensions.
func (p *Plan) MaxDims() []int { return p.prog.MaxDims() }

// Op returns the operation of launch i of the program.
func (p *Plan) Op(i int) ir.Op { return p.prog.Launches[i].Op }

// Of returns the index of the program's launch that a kernel belongs to.
func (p *Plan) Of(kernel int) int {
	return slices.IndexFunc(p.steps, func(s prepared) bool { return kernel < s.to })
}

// wrong returns the error for the place and value that a kernel of launch i reported.
func (p *Plan) wrong(r *Run, i, where, value int) error {
	f := p.reports[i]
	if f == nil {
		return fmt.Errorf("launch %d reports %d at %d", i, value, where)
	}
	return fmt.Errorf("%v: %w", p.Op(i), f(r, where, value))
}

// compiler plans the launches of a program.
type compiler struct {
	*Plan
	target  Target
	dims    []int                 // the largest
	launch  int                   // the one that is planned
	merged  map[int]bool          // launches that run as a part of another one
	sums    map[int][]ir.Ref      // tensors whose squares a launch adds up
	joined  map[int]*vector       // launches whose few rows a launch before them computes
	gated   map[int]*gated        // GLUs and their gradients that a launch before them may compute
	narrows map[int]*narrowLaunch // launches of narrow products that a launch belongs to
	orders  []*rowOrder           // of rows, by index
}

// saves adds bytes that the launches which are joined with the current one need not move.
func (c *compiler) saves(s saving) {
	to := &c.steps[c.launch]
	to.saved = append(to.saved, s)
}

// readers returns the launches from number i on that read memory of v, until a launch writes another value there.
func (c *compiler) readers(v ir.Ref, i int) []int { return readersOf(c.prog.Launches, v, i, c.dims) }

// readersOf returns the readers of v among launches.
func readersOf(launches []ir.Launch, v ir.Ref, i int, dims []int) (list []int) {
	over := func(o ir.Ref) bool { return v.Overlaps(o, dims) }
	for ; i < len(launches); i++ {
		l := &launches[i]
		if slices.ContainsFunc(l.In, over) {
			list = append(list, i)
		}
		if slices.ContainsFunc(l.Out, over) {
			break
		}
	}
	return list
}

// unread reports whether v is a value of the arena that nothing but launch i, a reader of v, reads.
func (c *compiler) unread(v ir.Ref, i int) bool {
	return v.Space == ir.SpaceArena && len(c.readers(v, i)) == 1
}

// kernel adds the named kernel from a file of package kernels, with the given number of threads per block.
func (c *compiler) kernel(file, name string, threads int) (*Kernel, error) {
	k := &Kernel{File: file, Name: name, block: [3]uint32{uint32(threads), 1, 1}}
	if most := c.target.Threads; most > 0 && threads > most {
		return nil, unsupported("kernel %s has blocks of %d threads, the device of at most %d", name, threads, most)
	}
	c.Kernels = append(c.Kernels, k)
	return k, nil
}

// sharing adds a kernel whose blocks have the given number of bytes of dynamic shared memory.
func (c *compiler) sharing(file, name string, threads, bytes int) (*Kernel, error) {
	k, err := c.kernel(file, name, threads)
	if err != nil {
		return nil, err
	}
	return k, c.share(k, bytes)
}

// share sets the dynamic shared memory per block of the kernel. It is called while a launch is planned.
func (c *compiler) share(k *Kernel, bytes int) error {
	if c.target.Declared {
		return nil
	}
	if !c.target.holds(bytes) {
		return unsupported("kernel %s has blocks of %d bytes of shared memory, the device of at most %d", k.Name, bytes, c.target.Shared)
	}
	k.shared = bytes
	return nil
}

// reserve sets aside scratch memory for the launch that is being planned. Launches run one after another and share
// this memory.
func (c *compiler) reserve(bytes int) { c.Scratch = max(c.Scratch, bytes) }

// hold sets aside scratch memory that keeps its contents until the run ends, and returns the value's place in it.
func (c *compiler) hold(bytes int) (at int) {
	at = c.kept
	c.kept += scratchBytes(bytes)
	return at
}

// held returns the address of a value of hold.
func (p *Plan) held(r *Run, at int) Pointer { return r.Scratch + Pointer(p.passing+at) }

// refuse registers the function that explains the errors of the current launch's kernels.
func (c *compiler) refuse(f report) { c.reports[c.launch] = f }

// unsupported returns an error for a launch that no kernel supports.
func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %s", backend.ErrUnsupported, fmt.Sprintf(format, args...))
}
