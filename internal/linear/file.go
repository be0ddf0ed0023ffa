package linear

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/safetensors"
)

// Names in a file.
const (
	coefficientsName = "coefficients"
	interceptName    = "intercept"
	fitInterceptKey  = "fit_intercept" // metadata: "true" or "false"
)

// SaveSafetensors writes the model to a file with the tensors "coefficients"
// [n] and "intercept" [1], both F64, and the metadata "fit_intercept", "true"
// or "false". It keeps every bit of the numbers. It replaces an old file
// atomically, even if the machine crashes. The same model always gives the same
// bytes, identical to the output of Python's safetensors.numpy.save_file.
//
// It fails with ErrUnfitted, or if the file cannot be written.
func (m *LinearRegression) SaveSafetensors(path string) error {
	if len(m.Coefficients) == 0 {
		return fmt.Errorf("linear: save %s: %w", path, ErrUnfitted)
	}
	fitted := "true"
	if m.NoIntercept {
		fitted = "false"
	}
	err := safetensors.WriteFile(path, []safetensors.Entry{
		vector(coefficientsName, m.Coefficients),
		vector(interceptName, []float64{m.Intercept}),
	}, map[string]string{fitInterceptKey: fitted}, safetensors.Durable())
	if err != nil {
		return fmt.Errorf("linear: %w", err)
	}
	return nil
}

func vector(name string, values []float64) safetensors.Entry {
	data := make([]byte, 0, 8*len(values))
	for _, v := range values {
		data = binary.LittleEndian.AppendUint64(data, math.Float64bits(v))
	}
	return safetensors.Entry{Name: name, DType: safetensors.F64, Shape: []int{len(values)}, Data: data}
}

// LoadSafetensors reads a model written by SaveSafetensors or another program:
// "coefficients" [n] and "intercept" [1], each F64 or F32. Without the metadata
// "fit_intercept" the model is assumed to have an intercept. Other tensors and
// metadata are ignored.
//
// It fails with safetensors.ErrNotFound if a tensor is missing, with ErrShape
// and ErrFile for shapes, dtypes and metadata that are invalid for a linear
// regression, and as safetensors.Open does.
func LoadSafetensors(path string) (*LinearRegression, error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, fmt.Errorf("linear: %w", err)
	}
	m, err := read(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("linear: %w", err)
	}
	return m, nil
}

func read(f *safetensors.File) (*LinearRegression, error) {
	m := &LinearRegression{}
	var err error
	if m.Coefficients, err = readVector(f, coefficientsName); err != nil {
		return nil, err
	}
	if len(m.Coefficients) == 0 {
		return nil, fmt.Errorf("%s: tensor %q: found shape [0], expected at least one value: %w", f.Path(), coefficientsName, ErrShape)
	}
	intercept, err := readVector(f, interceptName)
	if err != nil {
		return nil, err
	}
	if len(intercept) != 1 {
		return nil, fmt.Errorf("%s: tensor %q: found %d values, expected 1: %w", f.Path(), interceptName, len(intercept), ErrShape)
	}
	m.Intercept = intercept[0]
	switch fitted, given := f.Metadata()[fitInterceptKey]; {
	case !given, fitted == "true":
	case fitted == "false":
		m.NoIntercept = true
	default:
		return nil, fmt.Errorf("%s: metadata %q: found %q, expected \"true\" or \"false\": %w", f.Path(), fitInterceptKey, fitted, ErrFile)
	}
	return m, nil
}

// readVector reads a one-dimensional tensor; F32 widens to float64 exactly.
func readVector(f *safetensors.File, name string) ([]float64, error) {
	v, err := f.Lookup(name)
	if err != nil {
		return nil, err
	}
	if len(v.Shape) != 1 {
		return nil, fmt.Errorf("%s: tensor %q: found shape %v, expected one dimension: %w", f.Path(), name, v.Shape, ErrShape)
	}
	if v.DType != safetensors.F64 && v.DType != safetensors.F32 {
		return nil, fmt.Errorf("%s: tensor %q: found %v, expected F64 or F32: %w", f.Path(), name, v.DType, ErrFile)
	}
	values := make([]float64, v.Shape[0])
	err = v.WithBytes(func(data []byte) error {
		for i := range values {
			if v.DType == safetensors.F32 {
				values[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:])))
			} else {
				values[i] = math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:]))
			}
		}
		return nil
	})
	return values, err
}
