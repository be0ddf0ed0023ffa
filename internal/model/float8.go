package model

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// This file reads weights in 8-bit floats (F8_E4M3), stored as plain casts or with scales, see
// float8_scale.go. Weights of layers and stacks of experts in numbered layers keep their 8 bits on
// the device. Others are converted to bfloat16, which represents all their values, or to float32 if they have a
// scale.

// numbered matches names of tensors in a numbered block.
var numbered = regexp.MustCompile(`(^|\.)[a-z_]+\.[0-9]+\.`)

// findFloat8 finds the weights that are stored in 8-bit floats.
func (m *Model) findFloat8() error {
	for _, name := range m.set.Names() {
		v, err := m.set.Lookup(name)
		if err != nil {
			return err
		}
		if v.DType != safetensors.F8E4M3 {
			continue
		}
		scale, err := m.storedScale(name, v)
		if err != nil {
			return fmt.Errorf("model: weight %q in 8-bit floats: %w", name, err)
		}
		if (!strings.HasSuffix(name, weightSuffix) || len(v.Shape) != 2 || !numbered.MatchString(name)) && !isExperts(name, v) {
			m.converted[name] = widenedWhole(name, v, scale)
			continue
		}
		if scale != nil {
			m.converted[name+nn.ScaleSuffix] = scale.converted()
		}
		m.float8 = append(m.float8, name)
	}
	if f := m.Config.float8; f != nil && len(m.float8) == 0 {
		return fmt.Errorf("model: %w: quantization_config: quant_method %q: found no weight in 8-bit floats in the files, expected some", ErrConfig, f.Method)
	}
	return nil
}

// scalesOf returns the scales of a weight in 8-bit floats, f32 of the given shape.
func scalesOf(from string, shape []int, block ir.DequantizeAttr, read func() ([]float32, error)) *converted {
	return &converted{dtype: tensor.F32, shape: shape, block: block, from: []string{from}, fill: func(put func(int, []byte) error) error {
		scale, err := read()
		if err != nil {
			return err
		}
		return put(0, tensor.BytesOf(scale))
	}}
}

// widenedWhole returns a weight that is converted from 8 bits when it is loaded.
func widenedWhole(name string, v *safetensors.View, scale *storedScale) *converted {
	c := &converted{dtype: tensor.BF16, shape: slices.Clone(v.Shape), from: []string{name}}
	if scale != nil {
		c.dtype, c.from = tensor.F32, append(c.from, scale.view.Name)
	}
	c.fill = func(put func(int, []byte) error) error {
		values, err := widenFloat8(v, scale)
		if err != nil {
			return err
		}
		data := make([]byte, c.dtype.Bytes(len(values)))
		if err := tensor.FromFloat32(data, values, c.dtype); err != nil {
			return err
		}
		return put(0, data)
	}
	return c
}

// widenFloat8 returns the numbers that a tensor in 8-bit floats stands for.
func widenFloat8(v *safetensors.View, scale *storedScale) (values []float32, err error) {
	if err = v.WithBytes(func(data []byte) (err error) {
		values, err = tensor.Tensor{DType: tensor.F8E4M3, Shape: v.Shape, Data: data}.Float32s()
		return err
	}); err != nil || scale == nil {
		return values, err
	}
	s, err := scale.read()
	if err != nil {
		return nil, err
	}
	for i := range values {
		values[i] *= s[scale.Index(i)]
	}
	return values, nil
}

// toFloat8 converts a weight [out, in] to 8-bit floats with a scale for each row when it is
// uploaded.
func (m *Model) toFloat8(name string, v *safetensors.View, from tensor.DType, report *progressOf) {
	shape := slices.Clone(v.Shape)
	weight := &converted{dtype: tensor.F8E4M3, shape: shape, from: []string{name}}
	weight.fill = func(put func(int, []byte) error) error {
		return float8Rows(v, from, func(row int, codes []byte, _ float32) error {
			return report.watch(put)(row*shape[1], codes)
		})
	}
	scales := func() ([]float32, error) {
		all := make([]float32, shape[0])
		err := float8Rows(v, from, func(row int, _ []byte, scale float32) error { all[row] = scale; return nil })
		return all, err
	}
	report.total += int64(weight.size())
	m.converted[name] = weight
	m.converted[name+nn.ScaleSuffix] = scalesOf(name, []int{shape[0], 1}, ir.DequantizeAttr{Rows: 1, Columns: shape[1]}, scales)
	if !slices.Contains(m.used, name+nn.ScaleSuffix) {
		m.used = append(m.used, name+nn.ScaleSuffix)
	}
}

// float8Rows calls each with the rows of a view as 8-bit floats, in order.
func float8Rows(v *safetensors.View, from tensor.DType, each func(row int, codes []byte, scale float32) error) error {
	columns := v.Shape[1]
	values, codes := make([]float32, columns), make([]byte, columns)
	err := v.WithBytes(func(data []byte) error {
		size := from.Bytes(columns)
		for row := range v.Shape[0] {
			if err := tensor.ToFloat32(values, data[row*size:][:size], from); err != nil {
				return err
			}
			scale, err := quant.Float8Row(codes, values)
			if err != nil {
				return fmt.Errorf("row %d: %w", row, err)
			}
			if err := each(row, codes, scale); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && v.InPlace() {
		_ = safetensors.Advise([]*safetensors.View{v}, safetensors.AdviseDontNeed) // which is advice
	}
	return err
}

// scaleBytes returns the size in bytes of the scales of a weight in 8-bit floats.
func (m *Model) scaleBytes(name string) int {
	if c := m.converted[name+nn.ScaleSuffix]; c != nil {
		return c.size()
	}
	return 0
}

// addScales sets the scales of a weight in 8-bit floats, if it has some.
func (m *Model) addScales(name string, w *nn.Weight) {
	if c := m.converted[name+nn.ScaleSuffix]; c != nil {
		w.Block = c.block
		w.Scales = func() ([]float32, error) { return nn.Weight{DType: c.dtype, Shape: c.shape, Fill: c.fill}.Float32s() }
	}
}

// Float8Weight is a weight that the files have in 8-bit floats.
type Float8Weight struct {
	Float8Grid
	Values []float32 // what it stands for
	Scales []float32 // of the blocks; nil if there are none
}

// Float8 reads a tensor of the files that is stored in 8-bit floats.
func (m *Model) Float8(name string) (*Float8Weight, error) {
	v, s, err := m.float8Parts(name)
	if err != nil {
		return nil, err
	}
	w := &Float8Weight{}
	if s != nil {
		w.Float8Grid = s.Float8Grid
		if w.Scales, err = s.read(); err != nil {
			return nil, fmt.Errorf("weight %q: %w", name, err)
		}
	}
	w.Values, err = widenFloat8(v, s)
	return w, err
}

// Float8Scale returns the name of the tensor with the scales of a tensor that is stored in
// 8-bit floats. It is empty if there is none.
func (m *Model) Float8Scale(name string) string {
	if _, s, err := m.float8Parts(name); err == nil && s != nil {
		return s.view.Name
	}
	return ""
}

func (m *Model) float8Parts(name string) (*safetensors.View, *storedScale, error) {
	v, err := m.set.Lookup(name)
	if err != nil {
		return nil, nil, err
	}
	s, err := m.storedScale(name, v)
	if err != nil {
		return nil, nil, fmt.Errorf("weight %q in 8-bit floats: %w", name, err)
	}
	return v, s, nil
}

// activationScales matches tensors with which other programs round activations to 8 bits.
var activationScales = regexp.MustCompile(`(\.(input|output|activation|k|v)|_activation)_scale$`)

// ScalesActivations reports whether a tensor of the files has scales of activations.
func ScalesActivations(name string) bool { return activationScales.MatchString(name) }
