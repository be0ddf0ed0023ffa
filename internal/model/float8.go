package model

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// This file reads weights in 8-bit floats (F8_E4M3), stored as plain casts or with scales:
// NAME.scale_weight, as ComfyUI writes it, or NAME.weight_scale, with one number for the
// weight or one for each row. Weights of layers in numbered blocks keep their 8 bits on the
// device. Others are converted to bfloat16, which represents all their values, or to float32
// if they have a scale.

// scaleNames are the suffixes that tools append to a module's name for the scale of its
// weight.
var scaleNames = []string{".scale_weight", ".weight_scale"}

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
		scale, from, err := m.storedScale(name, v)
		if err != nil {
			return fmt.Errorf("model: weight %q in 8-bit floats: %w", name, err)
		}
		switch {
		case !strings.HasSuffix(name, weightSuffix) || len(v.Shape) != 2 || !numbered.MatchString(name):
			m.converted[name] = widenedWhole(name, v, scale, from)
			continue
		case scale != nil:
			m.converted[name+nn.ScaleSuffix] = rowScales(from, v.Shape[0], scale)
		}
		m.float8 = append(m.float8, name)
	}
	return nil
}

// storedScale returns a function that reads the scale stored for a weight, one number or one
// for each row. read is nil if there is no scale.
func (m *Model) storedScale(name string, weight *safetensors.View) (read func() ([]float32, error), from string, err error) {
	module, ok := strings.CutSuffix(name, weightSuffix)
	if !ok {
		return nil, "", nil
	}
	for _, suffix := range scaleNames {
		if !m.set.Has(module + suffix) {
			continue
		}
		v, err := m.set.Lookup(module + suffix)
		if err != nil {
			return nil, "", err
		}
		d, err := tensor.ParseDType(v.DType.String())
		rows := slices.Equal(v.Shape, weight.Shape[:1]) || slices.Equal(v.Shape, []int{weight.Shape[0], 1})
		n, shapeErr := tensor.NumElements(v.Shape)
		if err != nil || !d.IsFloat() || shapeErr != nil || n != 1 && !rows {
			return nil, "", fmt.Errorf("%w: %s is %v %v, expected one float, or one for each of %d rows", ErrQuantized, module+suffix, v.DType, v.Shape, weight.Shape[0])
		}
		return func() (scale []float32, err error) {
			err = v.WithBytes(func(data []byte) error {
				scale, err = tensor.Tensor{DType: d, Shape: v.Shape, Data: data}.Float32s()
				return err
			})
			for i, x := range scale {
				if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
					return nil, fmt.Errorf("%s: element %d is %v: %w", module+suffix, i, x, quant.ErrNotFinite)
				}
			}
			return scale, err
		}, module + suffix, nil
	}
	return nil, "", nil
}

// rowScales returns the scales of a weight as one number for each row.
func rowScales(from string, rows int, read func() ([]float32, error)) *converted {
	return &converted{dtype: tensor.F32, shape: []int{rows, 1}, from: []string{from}, fill: func(put func(int, []byte) error) error {
		scale, err := read()
		if err != nil {
			return err
		}
		for len(scale) < rows {
			scale = append(scale, scale[0])
		}
		return put(0, tensor.BytesOf(scale))
	}}
}

// widenedWhole returns a weight that is converted from 8 bits when it is loaded.
func widenedWhole(name string, v *safetensors.View, scale func() ([]float32, error), from string) *converted {
	c := &converted{dtype: tensor.BF16, shape: slices.Clone(v.Shape), from: []string{name}}
	if scale != nil {
		c.dtype, c.from = tensor.F32, append(c.from, from)
	}
	c.fill = func(put func(int, []byte) error) error {
		var values []float32
		err := v.WithBytes(func(data []byte) (err error) {
			values, err = tensor.Tensor{DType: tensor.F8E4M3, Shape: v.Shape, Data: data}.Float32s()
			return err
		})
		if err != nil {
			return err
		}
		if scale != nil {
			s, err := scale()
			if err != nil {
				return err
			}
			row := len(values) / len(s)
			for i := range values {
				values[i] *= s[i/max(1, row)]
			}
		}
		data := make([]byte, c.dtype.Bytes(len(values)))
		if err := tensor.FromFloat32(data, values, c.dtype); err != nil {
			return err
		}
		return put(0, data)
	}
	return c
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
	m.converted[name+nn.ScaleSuffix] = rowScales(name, shape[0], scales)
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

// scalesOf returns a function that reads the row scales of a weight in 8-bit floats, or nil if
// it has none.
func (m *Model) scalesOf(name string) func() ([]float32, error) {
	c := m.converted[name+nn.ScaleSuffix]
	if c == nil {
		return nil
	}
	return func() ([]float32, error) { return nn.Weight{DType: c.dtype, Shape: c.shape, Fill: c.fill}.Float32s() }
}
