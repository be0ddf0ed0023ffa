//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"context"
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// The self-test computes y = norm(x)·w · mᵀ with these numbers of rows and columns: odd enough to test the edges of
// tiles, small enough for startup.
const (
	selfRows, selfIn, selfOut = 37, 72, 43
	selfEps                   = 1e-5
	selfError                 = 1e-4 // of numbers around 1
	selfRounded               = 0.03 // if operands are rounded to bfloat16
)

// selfBroken is added to the expected values, for tests.
var selfBroken float64

// selfTest computes a norm and a matrix multiplication on the device and compares them with the host's results. A
// device whose compiler or driver is faulty is rejected.
func (d *Device) selfTest() error {
	if err := d.compareSelf(); err != nil {
		return fmt.Errorf("the self-test of a norm and a product: %w", err)
	}
	return nil
}

func (d *Device) compareSelf() error {
	e, err := d.Compile(selfProgram())
	if err != nil {
		return err
	}
	defer e.Close()
	x, w, m := selfNumbers(selfRows*selfIn, 1), selfNumbers(selfIn, 2), selfNumbers(selfOut*selfIn, 3)
	y := make([]float32, selfRows*selfOut)
	args := backend.Args{Dims: []int{0}}
	for _, values := range [][]float32{x, w, m, y} {
		b, err := d.Alloc(4 * len(values))
		if err != nil {
			return err
		}
		defer b.Free()
		if _, err := d.Upload(b, 0, tensor.BytesOf(values)); err != nil {
			return err
		}
		args.Buffers = append(args.Buffers, b)
	}
	f, err := e.Run(context.Background(), args)
	if err == nil {
		err = f.Wait(context.Background())
	}
	if err != nil {
		return err
	}
	if _, err = d.Download(tensor.BytesOf(y), args.Buffers[3], 0); err != nil { // immediate: no work is pending
		return err
	}
	limit := selfError
	if d.Precision == backend.BF16 {
		limit = selfRounded
	}
	for i, want := range selfExpected(x, w, m) {
		if got := float64(y[i]); !(math.Abs(got-want) <= limit*max(1, math.Abs(want))) {
			return fmt.Errorf("row %d, column %d is %v, expected %v", i/selfOut, i%selfOut, y[i], want)
		}
	}
	return nil
}

// selfProgram returns the program of the self-test.
func selfProgram() *ir.Program {
	matrix := func(shape ...int) ir.Type { return ir.Type{DType: tensor.F32, Shape: ir.ShapeOf(shape...)} }
	arg := func(i int, t ir.Type) ir.Ref { return ir.Ref{Space: ir.SpaceArg, Index: i, Type: t} }
	x, w, m, y := matrix(selfRows, selfIn), matrix(selfIn), matrix(selfOut, selfIn), matrix(selfRows, selfOut)
	h := ir.Ref{Space: ir.SpaceArena, Type: x}
	product := ir.GemmAttr{N: 1}
	product.P[0] = ir.ProductAttr{TB: true, Alpha: 1}
	return &ir.Program{
		Bounds: make([]ir.Bound, 1), Arena: x.Bytes(nil),
		Args: []ir.Arg{{Name: "x", Type: x}, {Name: "w", Type: w}, {Name: "m", Type: m}, {Name: "y", Type: y, Written: true}},
		Launches: []ir.Launch{
			{Op: ir.RMSNorm, Attr: ir.NormAttr{Eps: selfEps}, In: []ir.Ref{arg(0, x), arg(1, w)}, Out: []ir.Ref{h}},
			{Op: ir.Gemm, Attr: product, In: []ir.Ref{h, arg(2, m)}, Out: []ir.Ref{arg(3, y)}},
		},
	}
}

// selfNumbers returns n multiples of 1/8 between -1 and 1, which every precision represents exactly.
func selfNumbers(n int, seed uint32) []float32 {
	list := make([]float32, n)
	for i := range list {
		seed = seed*1664525 + 1013904223
		list[i] = float32(seed>>28)/8 - 1
	}
	return list
}

// selfExpected computes the expected result on the host.
func selfExpected(x, w, m []float32) []float64 {
	y := make([]float64, 0, selfRows*selfOut)
	for r := range selfRows {
		row, h, squares := x[r*selfIn:][:selfIn], make([]float64, selfIn), 0.0
		for _, v := range row {
			squares += float64(v) * float64(v)
		}
		scale := 1 / math.Sqrt(squares/selfIn+selfEps)
		for i, v := range row {
			h[i] = float64(v) * scale * float64(w[i])
		}
		for o := range selfOut {
			sum := 0.0
			for i, v := range h {
				sum += v * float64(m[o*selfIn+i])
			}
			y = append(y, sum+selfBroken)
		}
	}
	return y
}
