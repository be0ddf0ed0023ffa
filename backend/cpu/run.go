package cpu

import (
	"fmt"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/pool"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// kernel runs one launch.
type kernel func(r *run, l *ir.Launch) error

// kernels has all primitives, and the composites that need not be decomposed.
var kernels = map[ir.Op]kernel{
	ir.Const: constKernel, ir.Iota: iotaKernel, ir.Philox: philoxKernel, ir.Cast: castKernel,
	ir.Unary: unaryKernel, ir.Binary: binaryKernel, ir.Compare: compareKernel, ir.Where: whereKernel,
	ir.Reduce: reduceKernel, ir.ArgMax: argMaxKernel, ir.Gemm: gemmKernel,
	ir.Reshape: copyKernel, ir.Detach: copyKernel, ir.Transpose: transposeKernel, ir.Broadcast: broadcastKernel,
	ir.Slice: sliceKernel, ir.Concat: concatKernel,
	ir.GatherRows: gatherKernel, ir.ScatterAddRows: scatterKernel, ir.UpdateRows: updateKernel,

	ir.RMSNorm: rmsNormKernel, ir.RMSNormGrad: rmsNormGradKernel, ir.Softmax: softmaxKernel,
	ir.RoPETable: ropeTableKernel, ir.RoPE: ropeKernel,
	ir.Attention: attentionKernel, ir.AttentionGrad: attentionGradKernel,
	ir.GLU: gluKernel, ir.GLUGrad: gluGradKernel,
	ir.Dropout: dropoutKernel, ir.LoRADown: loraDownKernel, ir.LoRADownGrad: loraDownGradKernel,
	ir.CrossEntropy: crossEntropyKernel, ir.CrossEntropyGrad: crossEntropyGradKernel,
	ir.LinearCrossEntropy: linearCEKernel, ir.LinearCrossEntropyGrad: linearCEGradKernel,
	ir.SumSquares: sumSquaresKernel, ir.AdamW: adamWKernel,
}

// run is one execution of a program: where its values lie, and memory that
// kernels use in passing.
type run struct {
	dev   *Device
	arena []byte
	args  [][]byte
	dims  []int

	scratch []float32
	words   []int32
}

func (r *run) launch(l *ir.Launch) (err error) {
	defer func() {
		// A kernel that meets sizes that do not fit panics; the graph's rules
		// and the executor's checks should have kept it from that.
		if p := recover(); p != nil {
			if e, ok := p.(*pool.Panic); ok {
				p = e
			}
			err = fmt.Errorf("cpu: %v: internal error: %v", l.Op, p)
		}
	}()
	if err := kernels[l.Op](r, l); err != nil {
		return fmt.Errorf("cpu: %v: %w", l.Op, err)
	}
	return nil
}

// bytes is the memory of a value at its run-time size.
func (r *run) bytes(v ir.Ref) []byte {
	n := v.Type.Bytes(r.dims)
	if v.Space == ir.SpaceArg {
		return r.args[v.Index][v.Offset : v.Offset+n]
	}
	return r.arena[v.Offset : v.Offset+n]
}

func (r *run) f32(v ir.Ref) []float32 {
	if v.Type.DType != tensor.F32 {
		panic(fmt.Sprintf("%v read as f32", v.Type))
	}
	return view[float32](r.bytes(v), v.Type.Shape.Elements(r.dims))
}

func (r *run) i32(v ir.Ref) []int32 {
	return view[int32](r.bytes(v), v.Type.Shape.Elements(r.dims))
}

func (r *run) u32(v ir.Ref) []uint32 {
	return view[uint32](r.bytes(v), v.Type.Shape.Elements(r.dims))
}

func (r *run) shape(v ir.Ref) []int { return v.Type.Shape.Resolve(r.dims) }

// matrix gives the rows and columns of a value whose outer axes are joined.
func (r *run) matrix(v ir.Ref) (rows, cols int) {
	n := v.Type.Shape.Elements(r.dims)
	cols = v.Type.Last().Resolve(r.dims)
	if cols == 0 {
		return 0, 0
	}
	return n / cols, cols
}

// operand is the matrix that a value holds, its rows as wide as its last axis.
func (r *run) operand(v ir.Ref, transposed bool) gemm.Matrix {
	m := gemm.Matrix{Stride: v.Type.Last().Resolve(r.dims), Trans: transposed}
	switch v.Type.DType {
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
		panic(fmt.Sprintf("a matrix of %v", v.Type.DType))
	}
	if b := r.bytes(v); len(b) > 0 {
		m.Data = pointer(b)
	}
	return m
}

// temp gives n floats that are free until the next launch.
func (r *run) temp(n int) []float32 {
	if len(r.scratch) < n {
		r.scratch = make([]float32, n)
	}
	return r.scratch[:n]
}

// tempWords gives n integers that are free until the next launch.
func (r *run) tempWords(n int) []int32 {
	if len(r.words) < n {
		r.words = make([]int32, n)
	}
	return r.words[:n]
}

// chunk is the number of elements that one task of an elementwise kernel
// takes: a fixed number, so that no result depends on the number of workers.
const chunk = 8192

// elements spreads n elements over the workers.
func (r *run) elements(n int, f func(lo, hi int)) {
	if n <= chunk {
		if n > 0 {
			f(0, n)
		}
		return
	}
	r.dev.pool.Run((n+chunk-1)/chunk, func(i int) { f(i*chunk, min(n, i*chunk+chunk)) })
}

// rows spreads rows of cols elements over the workers.
func (r *run) rows(rows, cols int, f func(lo, hi int)) {
	per := max(1, chunk/max(1, cols))
	if rows <= per {
		if rows > 0 {
			f(0, rows)
		}
		return
	}
	r.dev.pool.Run((rows+per-1)/per, func(i int) { f(i*per, min(rows, i*per+per)) })
}
