package cli

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// openTensors opens a safetensors file, an adapter or a model.
func openTensors(path string) (tensors, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("diff: %w", err)
	}
	if !info.IsDir() {
		return safetensors.Open(path)
	}
	if weights := filepath.Join(path, lora.WeightsFile); exists(weights) {
		return safetensors.Open(weights)
	}
	set, err := safetensors.OpenModel(path)
	if err != nil {
		return nil, fmt.Errorf("diff: %w", err)
	}
	return set, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// sortedNames are the names of both, each once.
func sortedNames(x, y tensors) []string {
	names := slices.Concat(x.Names(), y.Names())
	slices.Sort(names)
	return slices.Compact(names)
}

// chunk is the number of elements that are converted at a time: tensors of
// any size are compared in little memory.
const chunk = 1 << 16

// diffTensors compares two tensors element by element.
func diffTensors(v, w *safetensors.View) (*tensorDiff, error) {
	t := &tensorDiff{Name: v.Name, DTypes: [2]string{v.DType.String(), w.DType.String()}}
	if !slices.Equal(v.Shape, w.Shape) {
		t.Shapes = [][]int{v.Shape, w.Shape}
		return t, nil
	}
	err := v.Use(func(a []byte) error {
		return w.Use(func(b []byte) error {
			if v.DType == w.DType && bytes.Equal(a, b) {
				return nil
			}
			return t.compare(v, w, a, b)
		})
	})
	return t, err
}

func (t *tensorDiff) compare(v, w *safetensors.View, a, b []byte) error {
	n := 1
	for _, d := range v.Shape {
		n *= d
	}
	x, y := make([]float64, min(n, chunk)), make([]float64, min(n, chunk))
	at, largest := -1, 0.0
	for i := 0; i < n; i += chunk {
		k := min(chunk, n-i)
		if err := float64s(x[:k], a, i, v.DType); err != nil {
			return err
		}
		if err := float64s(y[:k], b, i, w.DType); err != nil {
			return err
		}
		for j := range k {
			p, q := x[j], y[j]
			if abs := math.Abs(p); abs > largest && !math.IsInf(abs, 1) {
				largest = abs
			}
			if p == q || math.IsNaN(p) && math.IsNaN(q) {
				continue
			}
			t.Differ++
			d := math.Abs(p - q)
			if math.IsNaN(d) || math.IsInf(d, 1) {
				d = math.MaxFloat64
			}
			if at < 0 || d > t.MaxAbs {
				at, t.MaxAbs = i+j, d
				t.A, t.B = strconv.FormatFloat(p, 'g', 9, 64), strconv.FormatFloat(q, 'g', 9, 64)
			}
		}
	}
	if at < 0 {
		return nil
	}
	t.Relative = min(t.MaxAbs/largest, math.MaxFloat64) // x/0 too
	t.At = make([]int, len(v.Shape))
	for i := len(v.Shape) - 1; i >= 0; i-- {
		t.At[i] = at % v.Shape[i]
		at /= v.Shape[i]
	}
	return nil
}

// float64s converts len(dst) elements from element first on.
func float64s(dst []float64, data []byte, first int, d safetensors.DType) error {
	size := d.Bits() / 8
	if d.Bits()%8 != 0 || d == safetensors.C64 {
		return fmt.Errorf("elements of type %v cannot be compared as numbers", d)
	}
	data = data[first*size : (first+len(dst))*size]
	for i := range dst {
		switch d {
		case safetensors.F64:
			dst[i] = math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:]))
		case safetensors.I64:
			dst[i] = float64(int64(binary.LittleEndian.Uint64(data[8*i:])))
		case safetensors.U64:
			dst[i] = float64(binary.LittleEndian.Uint64(data[8*i:]))
		case safetensors.I32:
			dst[i] = float64(int32(binary.LittleEndian.Uint32(data[4*i:])))
		case safetensors.U32:
			dst[i] = float64(binary.LittleEndian.Uint32(data[4*i:]))
		default:
			return small(dst, data, d)
		}
	}
	return nil
}

// small converts types that float32 holds exactly.
func small(dst []float64, data []byte, d safetensors.DType) error {
	t, err := tensor.ParseDType(d.String())
	if err != nil {
		return fmt.Errorf("elements of type %v cannot be compared as numbers", d)
	}
	x := make([]float32, len(dst))
	if err := tensor.ToFloat32(x, data, t); err != nil {
		return err
	}
	for i, v := range x {
		dst[i] = float64(v)
	}
	return nil
}
