package cpu

import (
	"fmt"
	"unsafe"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/attention"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/pool"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// kernel prepares a launch of a program and returns the function that runs it. Everything that the launch needs
// (closures for the workers, memory for operands) is allocated here, so that running it allocates nothing. During
// preparation the sizes are those of the largest dimensions, and there is no data.
type kernel func(r *run, l *ir.Launch) func() error

// kernels has all primitives, and the composites that need not be decomposed.
var kernels = map[ir.Op]kernel{
	ir.Const: constKernel, ir.Iota: iotaKernel, ir.Philox: philoxKernel, ir.Cast: castKernel,
	ir.Unary: unaryKernel, ir.Binary: binaryKernel, ir.Compare: compareKernel, ir.Where: whereKernel,
	ir.Reduce: reduceKernel, ir.ArgMax: argMaxKernel, ir.Gemm: batchKernel,
	ir.Reshape: copyKernel, ir.Detach: copyKernel, ir.Transpose: transposeKernel, ir.Broadcast: broadcastKernel,
	ir.Slice: sliceKernel, ir.Concat: concatKernel,
	ir.GatherRows: gatherKernel, ir.ScatterAddRows: scatterKernel, ir.UpdateRows: updateKernel,

	ir.RMSNorm: rmsNormKernel, ir.RMSNormGrad: rmsNormGradKernel, ir.Softmax: softmaxKernel,
	ir.TopK: topKKernel, ir.ScatterRows: scatterRowsKernel,
	ir.RowsGemm: rowsGemmKernel, ir.RowsGemmGrad: rowsGemmGradKernel, ir.LayerNorm: layerNormKernel, ir.LayerNormGrad: layerNormGradKernel,
	ir.Conv2D: conv2DKernel, ir.GroupNorm: groupNormKernel, ir.Dequantize: dequantizeKernel,
	ir.RoPETable: ropeTableKernel, ir.RoPE: ropeKernel,
	ir.Attention: attentionKernel, ir.AttentionGrad: attentionGradKernel,
	ir.Activate: activateKernel, ir.ActivateGrad: activateGradKernel,
	ir.GLU: gluKernel, ir.GLUGrad: gluGradKernel,
	ir.Dropout: dropoutKernel, ir.LoRADown: loraDownKernel, ir.LoRADownGrad: loraDownGradKernel,
	ir.LoRADownInputGrad: loraDownInputGradKernel,
	ir.CrossEntropy:      crossEntropyKernel, ir.CrossEntropyGrad: crossEntropyGradKernel,
	ir.LinearCrossEntropy: linearCEKernel, ir.LinearCrossEntropyGrad: linearCEGradKernel,
	ir.SumSquares: sumSquaresKernel, ir.AdamW: adamWKernel, ir.AdamW8: adamW8Kernel,
}

// run is one execution of a program: the memory of its values, and temporary memory of kernels.
type run struct {
	dev     *Device
	prog    *ir.Program
	arena   []byte
	args    [][]byte
	buffers []*buffer // of args
	dims    []int

	rest func() // lets other programs use the workers for a while; nil if not preemptible
	// The piece of a product that is under way, see multiply.
	cut piece

	// Multiplication with weights in blocks, see blocks.go.
	deep      piece   // some rows of B of cut
	pieces    []piece // per worker
	blockCall *gemm.Call
	tiles     blockTiles
	widening  widening
	fewTask   func(worker, i int)
	widenTask func(lo, hi int)

	masks []*keptMask // of dropout

	mode   backend.Pack
	copies []packRequest // packed weights that launches would use

	scratch []float32 // for the launch under way
	need    needs     // of all launches

	rooms []wideScratch // per worker; nil if no value is stored narrowly

	// Arguments that elements and rows pass to the workers.
	part        func(lo, hi int)
	count, size int
	task        func(i int)
	partIn      func(lo, hi int, m *wideScratch)
	taskIn      func(worker, i int)
	noRoom      func(lo, hi int)
}

// needs is the memory, in addition to the arena, that the launches of a program need one at a time, at the largest
// dimensions.
type needs struct {
	temp     int             // floats of a run's own
	masks    int             // bytes of masks that are kept
	wide     int             // floats of a worker's wideScratch
	blocks   int             // floats of weights that the device widens
	serial   gemm.Scratch    // of the engine of products, for each worker
	products gemm.Scratch    // of the engine of products
	scores   attention.Sizes // of that of attention
}

// step is a launch of a program, or several that run as one.
type step struct {
	launches []ir.Launch
	run      func() error
	products manyProducts // of launches that are such, else nil
	later    bool         // one of the next steps computes them, in this run
}

// newRun prepares the launches of p, with packed weights as mode says.
func newRun(d *Device, p *ir.Program, mode backend.Pack) (r *run, steps []step) {
	r = &run{dev: d, prog: p, dims: p.MaxDims(), mode: mode}
	r.args, r.buffers = make([][]byte, 0, len(p.Args)), make([]*buffer, 0, len(p.Args))
	r.task = func(i int) { r.part(i*r.size, min(r.count, (i+1)*r.size)) }
	r.taskIn = func(w, i int) { r.partIn(i*r.size, min(r.count, (i+1)*r.size), &r.rooms[w]) }
	r.noRoom = func(lo, hi int) { r.partIn(lo, hi, nil) }
	for rest := p.Launches; len(rest) > 0; {
		s := r.newStep(rest)
		steps, rest = append(steps, s), rest[len(s.launches):]
	}
	alone := 0 // the first step that none before it is joined with
	for i := range steps {
		if r.join(steps[alone:i], &steps[i]) {
			alone = i + 1
		}
	}
	r.need.masks = r.maskMemory()
	return r, steps
}

// newStep prepares the first launch, together with the following ones that run as one step with it.
func (r *run) newStep(launches []ir.Launch) step {
	if list := siblings(launches, r.dims); len(list) > 0 {
		p := newProducts(r, list)
		return step{launches: list, run: p.run, products: p}
	}
	if list := dropping(launches); len(list) > 0 {
		p := newLoRADowns(r, list)
		return step{launches: list, run: p.run, products: p}
	}
	if s, ok := r.activated(launches); ok {
		return s
	}
	return step{launches: launches[:1], run: kernels[launches[0].Op](r, &launches[0])}
}

// do runs a step.
func (r *run) do(s *step) (err error) {
	defer func() {
		// A kernel that meets sizes that do not fit panics; the graph's rules
		// and the executor's checks should have kept it from that.
		if p := recover(); p != nil {
			if fault := safetensors.Fault(p); fault != nil {
				err = fmt.Errorf("cpu: %v: weights: %w", s.launches[0].Op, fault)
				return
			}
			if e, ok := p.(*pool.Panic); ok {
				p = e
			}
			err = fmt.Errorf("cpu: %v: internal error: %v", s.launches[0].Op, p)
		}
	}()
	if err := s.run(); err != nil {
		return fmt.Errorf("cpu: %v: %w", s.launches[0].Op, err)
	}
	return nil
}

// never returns the step of a launch that cannot run.
func never(format string, args ...any) func() error {
	err := fmt.Errorf(format, args...)
	return func() error { return err }
}

// bytes returns the memory of a value at its run-time size.
func (r *run) bytes(v ir.Ref) []byte {
	n := v.Bytes(r.dims)
	if v.Space == ir.SpaceArg {
		return r.args[v.Index][v.Offset : v.Offset+n]
	}
	return r.arena[v.Offset : v.Offset+n]
}

func (r *run) f32(v ir.Ref) []float32 {
	if v.Stored() != tensor.F32 {
		panic(fmt.Sprintf("%v read as f32", v))
	}
	return view[float32](r.bytes(v), v.Type.Shape.Elements(r.dims))
}

func (r *run) i32(v ir.Ref) []int32 {
	return view[int32](r.bytes(v), v.Type.Shape.Elements(r.dims))
}

func (r *run) u32(v ir.Ref) []uint32 {
	return view[uint32](r.bytes(v), v.Type.Shape.Elements(r.dims))
}

// shape appends the axes of v to buf, mostly buf[:0].
func (r *run) shape(buf []int, v ir.Ref) []int {
	for _, d := range v.Type.Shape {
		buf = append(buf, d.Resolve(r.dims))
	}
	return buf
}

// axis returns the size of axis i of v.
func (r *run) axis(v ir.Ref, i int) int { return v.Type.Shape[i].Resolve(r.dims) }

// matrix returns the number of rows and columns of a value whose outer axes are joined.
func (r *run) matrix(v ir.Ref) (rows, cols int) {
	n := v.Type.Shape.Elements(r.dims)
	cols = v.Type.Last().Resolve(r.dims)
	if cols == 0 {
		return 0, 0
	}
	return n / cols, cols
}

// form returns the operand without its data.
func (r *run) form(v ir.Ref, transposed bool) gemm.Matrix {
	m := gemm.Matrix{Stride: v.Type.Last().Resolve(r.dims), Trans: transposed}
	switch v.Stored() {
	case tensor.F32:
		m.Elem = gemm.F32
	case tensor.F16:
		m.Elem = gemm.F16
	case tensor.BF16:
		m.Elem = gemm.BF16
	case tensor.Q8:
		m.Elem = gemm.Q8
	case tensor.NF4:
		m.Elem = gemm.NF4
	case tensor.FP4:
		m.Elem = gemm.FP4
	default:
		d := v.Stored()
		if !d.Foreign() {
			panic(fmt.Sprintf("a matrix of %v", d))
		}
		m.Elem = elemOf(d)
	}
	return m
}

// operand returns the matrix that a value contains, with rows as long as its last axis.
func (r *run) operand(v ir.Ref, transposed bool) gemm.Matrix {
	m := r.form(v, transposed)
	if b := r.bytes(v); len(b) > 0 {
		m.Data = pointer(b)
	}
	return m
}

// reserve makes room for temp(n) in every run.
func (r *run) reserve(n int) { r.need.temp = max(r.need.temp, n) }

// reserveProduct reserves memory for a multiplication like c, which needs no data yet.
func (r *run) reserveProduct(c *gemm.Call) {
	r.need.products = r.need.products.With(r.dev.gemm.Need(wide(c)))
	r.reserveBlocks(c)
}

// temp returns n temporary floats, valid until the next launch. reserve has allocated them.
func (r *run) temp(n int) []float32 { return r.scratch[:n] }

// asWords returns the memory of x as integers.
func asWords(x []float32) []int32 {
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// chunk is the number of elements that one task of an elementwise kernel processes: a constant, so that results do
// not depend on the number of workers.
const chunk = 8192

// elements spreads n elements over the workers.
func (r *run) elements(n int, f func(lo, hi int)) { r.spread(n, chunk, f) }

// rows spreads rows of cols elements over the workers.
func (r *run) rows(rows, cols int, f func(lo, hi int)) {
	r.spread(rows, max(1, chunk/max(1, cols)), f)
}

// spread runs f over [0,n) in tasks of size. f belongs to the step that runs;
// it must not call spread itself.
func (r *run) spread(n, size int, f func(lo, hi int)) {
	if n <= size {
		if n > 0 {
			f(0, n)
		}
		return
	}
	r.part, r.count, r.size = f, n, size
	r.dev.pool.Run((n+size-1)/size, r.task)
}
