package lora

import (
	"fmt"
	"math"
	"runtime"

	"github.com/lorafuse/lorafuse/internal/fork"
	"github.com/lorafuse/lorafuse/tensor"
)

// MergeInto adds the adapter to the weight of its module, or to the whole stack of
// matrices: W += Scale·B·A. With DoRA it then computes W = m·W/‖W‖ for each output row
// (column on Conv1D layers and embeddings). weight has the layout of the model's file
// and must be unmerged; with PiSSA or OLoRA it is the residual. Sums are accumulated in
// float64 in a fixed order.
//
// It fails with ErrShape if a size does not fit, and with ErrNotFinite if the result is
// not finite.
func (t Target) MergeInto(weight []float32, w Weights) error {
	if err := t.checkSizes(weight, w); err != nil {
		return err
	}
	t.adapter().merge(t, weight, w)
	return t.checkMerged(weight)
}

func (t Target) checkMerged(weight []float32) error {
	for i, v := range weight {
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("lora: merge %q: element %d becomes %v: %w", t.Name, i, v, ErrNotFinite)
		}
	}
	return nil
}

// roundTo rounds values to the precision of d.
func roundTo(values []float32, d tensor.DType) error {
	if d == tensor.F32 {
		return nil
	}
	if !d.IsFloat() {
		return fmt.Errorf("lora: a base weight of type %v: %w", d, ErrDType)
	}
	bytes := make([]byte, len(values)*d.Bits()/8)
	if err := tensor.FromFloat32(bytes, values, d); err != nil {
		return err
	}
	return tensor.ToFloat32(values, bytes, d)
}

func widen(src []float32) []float64 {
	dst := make([]float64, len(src))
	for i, v := range src {
		dst[i] = float64(v)
	}
	return dst
}

// transposed widens a matrix of rows·cols elements and transposes it.
func transposed(src []float32, rows, cols int) []float64 {
	dst := make([]float64, len(src))
	for i := range rows {
		for j := range cols {
			dst[j*rows+i] = float64(src[i*cols+j])
		}
	}
	return dst
}

// eachRange splits n rows among the processors. Every row is computed by one
// of them, so that the result does not depend on their number.
func eachRange(n int, do func(from, to int)) {
	workers := min(runtime.GOMAXPROCS(0), max(n, 1))
	var wg fork.Group
	for k := range workers {
		wg.Go(func() { do(k*n/workers, (k+1)*n/workers) })
	}
	wg.Wait()
}
