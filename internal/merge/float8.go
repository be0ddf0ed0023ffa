package merge

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// float8s are the bytes of a merged weight in 8-bit floats and of its scales. Parts
// that have been written are nil.
type float8s struct{ codes, scales []byte }

// findScales finds the scales of weights in 8-bit floats. If such weights get another type, it
// adds their scales and those of activations to skip.
func (w *writer) findScales(skip map[string]bool) error {
	w.scaled, w.rounded = map[string]string{}, map[string]*float8s{}
	if !w.model.Quantization().Float8 {
		return nil
	}
	set := w.model.Set()
	for _, name := range set.Names() {
		v, err := set.Lookup(name)
		if err != nil {
			return err
		}
		if v.DType == safetensors.F8E4M3 {
			if scale := w.model.Float8Scale(name); scale != "" {
				w.scaled[scale] = name
			}
		}
	}
	if w.options.DType == tensor.Invalid {
		return nil
	}
	for _, name := range set.Names() {
		if w.scaled[name] != "" || model.ScalesActivations(name) {
			skip[name] = true
		}
	}
	return nil
}

// float8 returns the bytes of a tensor if it is a merged weight that stays in 8-bit
// floats, or has the scales of one. Otherwise it returns nil.
func (w *writer) float8(x *weight) ([]byte, error) {
	if x.view == nil || len(w.scaled) == 0 && x.out != safetensors.F8E4M3 {
		return nil, nil
	}
	of := w.scaled[x.view.Name]
	isScale := of != ""
	if !isScale {
		of = x.view.Name
	}
	if w.rounded[of] == nil {
		weight := w.byStored[of]
		if weight == nil || weight.out != safetensors.F8E4M3 || !w.merger.Changes(weight.is) {
			return nil, nil
		}
		f, err := w.round(weight)
		if err != nil {
			return nil, err
		}
		w.rounded[of] = f
	}
	f := w.rounded[of]
	data := f.codes
	if isScale {
		data, f.scales = f.scales, nil
	} else {
		f.codes = nil
	}
	if f.codes == nil && f.scales == nil {
		delete(w.rounded, of)
	}
	return data, nil
}

// round merges a weight and rounds the result to 8-bit floats, with scales of the same blocks
// and of the same type.
func (w *writer) round(x *weight) (*float8s, error) {
	f, err := w.model.Float8(x.view.Name)
	if err != nil {
		return nil, err
	}
	before := append([]float32(nil), f.Values...)
	if _, err := w.merger.Merge(x.is, f.Values, tensor.F8E4M3); err != nil {
		return nil, err
	}
	w.result.Merged++
	out := &float8s{codes: make([]byte, len(f.Values))}
	if f.Scales == nil {
		for i, v := range f.Values {
			out.codes[i] = tensor.Float32ToF8E4M3(v)
			if back := float64(tensor.F8E4M3ToFloat32(out.codes[i])); math.IsNaN(back) || math.IsInf(back, 0) {
				return nil, fmt.Errorf("element %d is %v, more than 8-bit floats without scales hold: %w", i, v, lora.ErrNotFinite)
			}
		}
		w.rounding.add(before, f.Values, func(i int) float32 { return tensor.F8E4M3ToFloat32(out.codes[i]) })
		return out, nil
	}
	d, err := tensor.ParseDType(w.scaleView(x.view.Name).DType.String())
	if err != nil {
		return nil, err
	}
	if err := roundBlocks(out.codes, f, d); err != nil {
		return nil, err
	}
	out.scales = make([]byte, d.Bytes(len(f.Scales)))
	if err := tensor.FromFloat32(out.scales, f.Scales, d); err != nil {
		return nil, err
	}
	w.rounding.add(before, f.Values, func(i int) float32 {
		return tensor.F8E4M3ToFloat32(out.codes[i]) * f.Scales[f.Index(i)]
	})
	return out, nil
}

// scaleView returns the tensor with the scales of a weight.
func (w *writer) scaleView(name string) *safetensors.View {
	v, err := w.model.Set().Lookup(w.model.Float8Scale(name))
	if err != nil {
		return &safetensors.View{}
	}
	return v
}

// roundBlocks rounds the values of a weight to codes and updates its scales, of type d.
func roundBlocks(codes []byte, f *model.Float8Weight, d tensor.DType) error {
	values, rounded := make([]float32, 0, f.Block[0]*f.Block[1]), make([]byte, f.Block[0]*f.Block[1])
	each := func(down, across int, visit func(from, to int)) {
		matrix, down := down/f.Down()*f.Rows, down%f.Down()
		for row := matrix + down*f.Block[0]; row < matrix+min(f.Rows, (down+1)*f.Block[0]); row++ {
			visit(row*f.In+across*f.Block[1], row*f.In+min(f.In, (across+1)*f.Block[1]))
		}
	}
	for i := range f.Scales {
		down, across := i/f.Across(), i%f.Across()
		values = values[:0]
		each(down, across, func(from, to int) { values = append(values, f.Values[from:to]...) })
		scale, err := quant.Float8Block(rounded[:len(values)], values, f.Scales[i], func(s float32) float32 { return roundScale(s, d) })
		if err != nil {
			return err
		}
		f.Scales[i] = scale
		next := rounded
		each(down, across, func(from, to int) { next = next[copy(codes[from:to], next):] })
	}
	return nil
}

// roundScale rounds a scale to type d, to the least number above 0 if it would be 0.
func roundScale(s float32, d tensor.DType) float32 {
	data, out := make([]byte, d.Bytes(1)), []float32{s}
	if tensor.FromFloat32(data, out, d) != nil || tensor.ToFloat32(out, data, d) != nil {
		return s
	}
	if out[0] == 0 && s > 0 && d == tensor.F16 {
		return 0x1p-24
	}
	return out[0]
}

// rounding sums squares of merged weights, of their changes, and of what rounding adds.
type rounding struct{ weights, changes, errors float64 }

func (r *rounding) add(before, merged []float32, stored func(int) float32) {
	for i, x := range merged {
		v, change, wrong := float64(x), float64(x)-float64(before[i]), float64(stored(i))-float64(x)
		r.weights += v * v
		r.changes += change * change
		r.errors += wrong * wrong
	}
}

// parts returns the root mean square of the errors as a part of those of the weights and of
// the changes.
func (r *rounding) parts() (weights, changes float64) {
	if r.errors == 0 {
		return 0, 0
	}
	if r.changes > 0 {
		changes = math.Sqrt(r.errors / r.changes)
	}
	return math.Sqrt(r.errors / r.weights), changes
}
