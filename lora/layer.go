package lora

import (
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// Layer is LoRA in its plainest form, a single layer without a model around
// it: y = x·A·B·Alpha/Rank. Its matrices lie the other way round from those of
// an adapter folder.
type Layer struct {
	In, Out, Rank int
	Alpha         float32
	A             []float32 // [in, rank]
	B             []float32 // [rank, out]

	view [2]*safetensors.View // holds the mapping that A and B lie in, if any
}

// The names of the tensors of a saved Layer.
const (
	layerA = "lora_a"
	layerB = "lora_b"
)

// NewLayer returns a layer with A uniform in ±1/√in, drawn by seed, and B
// zero: it adds nothing until it is trained.
func NewLayer(in, out, rank int, alpha float32, seed uint64) (*Layer, error) {
	l := &Layer{In: in, Out: out, Rank: rank, Alpha: alpha}
	if err := l.checkSizes(); err != nil {
		return nil, err
	}
	t := Target{Module: Module{Name: layerA, Kind: Linear, In: in, Out: out}, Rank: rank}
	w, err := t.Initialize(seed, nil)
	if err != nil {
		return nil, err
	}
	l.A, l.B = w.A, w.B // uniform and zero in any orientation
	return l, nil
}

// NumParams is the number of trained parameters, Rank·(In+Out).
func (l *Layer) NumParams() int { return l.Rank * (l.In + l.Out) }

// Scale is Alpha/Rank.
func (l *Layer) Scale() float32 { return l.Alpha / float32(l.Rank) }

// Forward computes dst = x·A·B·Scale for batch rows: x has batch·In elements,
// dst batch·Out. It fails with ErrShape where a length does not fit.
func (l *Layer) Forward(dst, x []float32, batch int) error {
	if err := l.check(); err != nil {
		return err
	}
	if batch < 0 || len(x) != batch*l.In || len(dst) != batch*l.Out {
		return fmt.Errorf("lora: forward of %d rows through a layer of %d→%d: x has %d elements, dst %d: %w", batch, l.In, l.Out, len(x), len(dst), ErrShape)
	}
	h := make([]float32, l.Rank)
	for row := range batch {
		in, out := x[row*l.In:(row+1)*l.In], dst[row*l.Out:(row+1)*l.Out]
		clear(h)
		for i, v := range in {
			for k, a := range l.A[i*l.Rank : (i+1)*l.Rank] {
				h[k] += float32(v * a) // not fused: the same bits on every machine
			}
		}
		clear(out)
		for k, v := range h {
			v *= l.Scale()
			for j, b := range l.B[k*l.Out : (k+1)*l.Out] {
				out[j] += float32(v * b)
			}
		}
	}
	return nil
}

// Save writes the layer as a safetensors file with the F32 tensors lora_a
// [in, rank] and lora_b [rank, out] and no metadata, straight from memory. The
// file is complete, and on the disk, before it takes its name. Alpha is not in
// the file.
func (l *Layer) Save(path string) error {
	if err := l.check(); err != nil {
		return err
	}
	a, err := float32Tensor(l.A, l.In, l.Rank)
	if err != nil {
		return fmt.Errorf("lora: save layer: %w", err)
	}
	b, err := float32Tensor(l.B, l.Rank, l.Out)
	if err != nil {
		return fmt.Errorf("lora: save layer: %w", err)
	}
	entries := []safetensors.Entry{
		{Name: layerA, DType: safetensors.F32, Shape: a.Shape, Data: a.Data},
		{Name: layerB, DType: safetensors.F32, Shape: b.Shape, Data: b.Data},
	}
	if err := safetensors.WriteFile(path, entries, nil, safetensors.Durable()); err != nil {
		return fmt.Errorf("lora: save layer: %w", err)
	}
	return nil
}

// LoadLayer reads what Save wrote. alpha must be given, since it is not in the
// file; in, out and rank must be those of the file, or 0 where any will do. A
// and B lie in the mapped file where it can be used in place: they are then
// read-only, and valid as long as the Layer is reachable.
//
// It fails with ErrMissing, ErrDType, ErrShape, and ErrOrientation for a
// matrix that is transposed, as far as shapes can tell.
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
	for _, name := range file.Names() {
		if name != layerA && name != layerB {
			return fmt.Errorf("tensor %q: %w: a layer has %s and %s", name, ErrUnmatched, layerA, layerB)
		}
	}
	views, err := layerViews(file)
	if err != nil {
		return err
	}
	a, b := views[0].Shape, views[1].Shape
	switch {
	case a[1] == b[0] && (a[1] <= a[0] || a[1] <= b[1]):
	case a[1] == b[0]:
		return fmt.Errorf("%s %v, %s %v: %w: the rank would exceed both sides, expected [in, rank] and [rank, out]", layerA, a, layerB, b, ErrOrientation)
	case a[0] == b[1] || a[0] == b[0] || a[1] == b[1]:
		return fmt.Errorf("%s %v, %s %v: %w: expected [in, rank] and [rank, out]", layerA, a, layerB, b, ErrOrientation)
	default:
		return fmt.Errorf("%s %v, %s %v: %w: the ranks differ", layerA, a, layerB, b, ErrShape)
	}
	want, found := []int{in, rank, out}, []int{a[0], a[1], b[1]}
	for i, w := range want {
		if w != 0 && w != found[i] {
			kind := ErrShape
			if slices.Equal(a, []int{rank, in}) || slices.Equal(b, []int{out, rank}) {
				kind = ErrOrientation
			}
			return fmt.Errorf("%s %v, %s %v: %w: expected in %d, rank %d, out %d", layerA, a, layerB, b, kind, in, rank, out)
		}
	}
	l.In, l.Rank, l.Out, l.view = a[0], a[1], b[1], views
	if err := l.checkSizes(); err != nil {
		return err
	}
	if l.A, err = float32View(views[0]); err != nil {
		return err
	}
	l.B, err = float32View(views[1])
	return err
}

// layerViews finds both tensors and checks their type and number of
// dimensions.
func layerViews(file *safetensors.File) (views [2]*safetensors.View, err error) {
	for i, name := range []string{layerA, layerB} {
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

// float32View is the tensor in place, or a copy where it is not aligned.
func float32View(v *safetensors.View) ([]float32, error) {
	if s, err := safetensors.As[float32](v); err == nil {
		return s, nil
	}
	s := make([]float32, v.Len()/4)
	err := v.Use(func(data []byte) error { return tensor.ToFloat32(s, data, tensor.F32) })
	return s, err
}

// checkSizes reports dimensions that no layer has.
func (l *Layer) checkSizes() error {
	const limit = 1 << 30 // products of two then fit in an int
	for _, n := range []int{l.In, l.Out, l.Rank} {
		if n <= 0 || n > limit {
			return fmt.Errorf("lora: layer of in %d, out %d, rank %d: %w", l.In, l.Out, l.Rank, ErrShape)
		}
	}
	return nil
}

func (l *Layer) check() error {
	if err := l.checkSizes(); err != nil {
		return err
	}
	if len(l.A) != l.In*l.Rank || len(l.B) != l.Rank*l.Out {
		return fmt.Errorf("lora: layer of in %d, out %d, rank %d: A has %d elements, B %d: %w", l.In, l.Out, l.Rank, len(l.A), len(l.B), ErrShape)
	}
	return nil
}
