package lora

import (
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// Save writes the layer as a safetensors file with the F32 tensors lora_A.weight [rank,
// in] and lora_B.weight [out, rank], without metadata or intermediate copies. The file
// is complete on disk before it gets its name. It does not contain alpha.
func (l *Layer) Save(path string) error {
	if err := l.check(); err != nil {
		return err
	}
	return l.save(path, layerA, layerB, l.A, l.B, [2][]int{{l.Rank, l.In}, {l.Out, l.Rank}})
}

// SaveTransposed is Save in the form of programs that compute x·A·B: with the
// tensors lora_a [in, rank] and lora_b [rank, out].
func (l *Layer) SaveTransposed(path string) error {
	if err := l.check(); err != nil {
		return err
	}
	a, b := turned(l.A, l.Rank, l.In), turned(l.B, l.Out, l.Rank)
	return l.save(path, transposedA, transposedB, a, b, [2][]int{{l.In, l.Rank}, {l.Rank, l.Out}})
}

func (l *Layer) save(path, nameA, nameB string, a, b []float32, shapes [2][]int) error {
	ta, err := float32Tensor(a, shapes[0]...)
	if err != nil {
		return fmt.Errorf("lora: save layer: %w", err)
	}
	tb, err := float32Tensor(b, shapes[1]...)
	if err != nil {
		return fmt.Errorf("lora: save layer: %w", err)
	}
	entries := []safetensors.Entry{
		{Name: nameA, DType: safetensors.F32, Shape: ta.Shape, Data: ta.Data},
		{Name: nameB, DType: safetensors.F32, Shape: tb.Shape, Data: tb.Data},
	}
	if err := safetensors.WriteFile(path, entries, nil, safetensors.Durable()); err != nil {
		return fmt.Errorf("lora: save layer: %w", err)
	}
	return nil
}

// turned returns the transpose of the matrix m [rows, columns].
func turned(m []float32, rows, columns int) []float32 {
	t := make([]float32, len(m))
	for i := range rows {
		for j := range columns {
			t[j*rows+i] = m[i*columns+j]
		}
	}
	return t
}

// LoadLayer reads a file written by Save or SaveTransposed. alpha must be given, since
// it is not in the file. in, out and rank must match the file; 0 accepts any size. A
// file written by Save is used in place in mapped memory if possible: A and B are then
// read-only, and valid as long as the Layer is reachable.
//
// It fails with ErrMissing, ErrDType, ErrShape, and ErrOrientation for a matrix whose
// shape shows that it is transposed.
func LoadLayer(path string, in, out, rank int, alpha float32) (*Layer, error) {
	file, err := safetensors.Open(path)
	if err != nil {
		return nil, fmt.Errorf("lora: load layer: %w", err)
	}
	l := &Layer{Alpha: alpha}
	err = l.load(file, in, out, rank)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("lora: load layer %s: %w", path, err)
	}
	return l, nil
}

func (l *Layer) load(file *safetensors.File, in, out, rank int) error {
	f := layerForm{layerA, layerB, false}
	if !file.Has(layerA) && !file.Has(layerB) && (file.Has(transposedA) || file.Has(transposedB)) {
		f = layerForm{transposedA, transposedB, true}
	}
	for _, name := range file.Names() {
		if name != f.a && name != f.b {
			return fmt.Errorf("tensor %q: %w: a layer has %s and %s", name, ErrUnmatched, f.a, f.b)
		}
	}
	views, err := f.views(file)
	if err != nil {
		return err
	}
	if l.In, l.Rank, l.Out, err = f.sizes(views[0].Shape, views[1].Shape, in, rank, out); err != nil {
		return err
	}
	if err := l.checkSizes(); err != nil {
		return err
	}
	if l.A, err = float32View(views[0]); err != nil {
		return err
	}
	if l.B, err = float32View(views[1]); err != nil {
		return err
	}
	if f.transposed {
		l.A, l.B = turned(l.A, l.In, l.Rank), turned(l.B, l.Rank, l.Out)
		return file.Close()
	}
	l.view = views
	return nil
}

// layerForm holds the names and the orientation of a layer's tensors in a file.
type layerForm struct {
	a, b       string
	transposed bool
}

// sizes derives the sizes of a layer from the shapes of its tensors. The expected sizes
// in, rank and out may be 0.
func (f layerForm) sizes(a, b []int, in, rank, out int) (_, _, _ int, err error) {
	turn := func(s []int) []int { return []int{s[1], s[0]} }
	shapes, expected := fmt.Sprintf("%s %v, %s %v", f.a, a, f.b, b), "[rank, in] and [out, rank]"
	if f.transposed {
		a, b, expected = turn(a), turn(b), "[in, rank] and [rank, out]"
	}
	// From here on, a and b have the layout of a Layer.
	switch {
	case a[0] == b[1] && (a[0] <= a[1] || a[0] <= b[0]):
	case a[0] == b[1]:
		return 0, 0, 0, fmt.Errorf("%s: %w: the rank would exceed both sides, expected %s", shapes, ErrOrientation, expected)
	case a[1] == b[0] || a[1] == b[1] || a[0] == b[0]:
		return 0, 0, 0, fmt.Errorf("%s: %w: expected %s", shapes, ErrOrientation, expected)
	default:
		return 0, 0, 0, fmt.Errorf("%s: %w: the ranks differ", shapes, ErrShape)
	}
	want, found := []int{in, rank, out}, []int{a[1], a[0], b[0]}
	for i, w := range want {
		if w != 0 && w != found[i] {
			kind := ErrShape
			if slices.Equal(a, []int{in, rank}) || slices.Equal(b, []int{rank, out}) {
				kind = ErrOrientation
			}
			return 0, 0, 0, fmt.Errorf("%s: %w: expected in %d, rank %d, out %d", shapes, kind, in, rank, out)
		}
	}
	return a[1], a[0], b[0], nil
}

// views finds both tensors and checks their type and number of dimensions.
func (f layerForm) views(file *safetensors.File) (views [2]*safetensors.View, err error) {
	for i, name := range []string{f.a, f.b} {
		if !file.Has(name) {
			return views, fmt.Errorf("tensor %q: %w", name, ErrMissing)
		}
		v, err := file.Lookup(name)
		if err != nil {
			return views, err
		}
		if v.DType != safetensors.F32 {
			return views, fmt.Errorf("tensor %q: %w: found %v, expected F32", name, ErrDType, v.DType)
		}
		if len(v.Shape) != 2 {
			return views, fmt.Errorf("tensor %q: %w: found %v, expected two dimensions", name, ErrShape, v.Shape)
		}
		views[i] = v
	}
	return views, nil
}

// float32View returns the tensor in place, or a copy if it is not aligned.
func float32View(v *safetensors.View) ([]float32, error) {
	if s, err := safetensors.As[float32](v); err == nil {
		return s, nil
	}
	s := make([]float32, v.Len()/4)
	err := v.WithBytes(func(data []byte) error { return tensor.ToFloat32(s, data, tensor.F32) })
	return s, err
}
