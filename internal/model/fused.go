package model

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/lorafuse/lorafuse/internal/nn"
)

// fusedLayer is a linear layer of a checkpoint with the rows of several layers of the model.
// transformers 5 splits it in the same way when it loads the model.
type fusedLayer struct {
	name  string   // within a layer of the checkpoint, such as attn.Wqkv
	parts []string // within a layer of the model, in the order of their rows
}

// splitter is a [Family] whose checkpoints may have such layers.
type splitter interface {
	// fusedOf returns the tensor that holds a weight or bias, and which of its parts that is.
	// It returns no parts for weights of other layers.
	fusedOf(name string) (fused string, part, parts int)
}

// Fused returns the tensor of the checkpoint that holds the weights called parts, in the order of
// its rows, if name is one of them. It is empty if the checkpoint stores name by itself.
func (m *Model) Fused(name string) (fused string, part, parts int) {
	s, ok := m.Config.Family.(splitter)
	if !ok || m.set.Has(m.inFile(name)) {
		return "", 0, 0
	}
	if fused, part, parts = s.fusedOf(name); parts == 0 || !m.set.Has(m.inFile(fused)) {
		return "", 0, 0
	}
	return fused, part, parts
}

// partOf divides the rows of a weight into parts and returns one of them.
func partOf(name string, w nn.Weight, part, parts int) (nn.Weight, error) {
	elements := 1
	for _, n := range w.Shape {
		elements *= n
	}
	if len(w.Shape) == 0 || w.Shape[0]%parts != 0 || w.Scales != nil || w.DType.Bytes(elements/parts)*parts != w.Size() {
		return w, fmt.Errorf("%w: tensor %q is %v %v, expected rows of %d layers, in F32, F16, BF16 or whole blocks for each", ErrUnsupported, name, w.DType, w.Shape, parts)
	}
	size := w.Size() / parts
	first, end := part*size, (part+1)*size
	w.Shape, w.View = slices.Clone(w.Shape), nil
	w.Shape[0] /= parts
	if w.Fill == nil {
		w.Source.Bytes = w.Source.Bytes[first:end]
		return w, nil
	}
	fill := w.Fill
	w.Fill = func(put func(int, []byte) error) error {
		return fill(func(offset int, data []byte) error {
			from, to := max(first, offset), min(end, offset+len(data))
			if from >= to {
				return nil
			}
			return put(from-first, data[from-offset:to-offset])
		})
	}
	return w, nil
}

// layerOf divides the name of a tensor of an encoder into the number of its layer and the rest.
var layerOf = regexp.MustCompile(`^(.*\.)?layers\.([0-9]+)\.(.+)\.(weight|bias)$`)

// fusedOf implements splitter.
func (e *Encoder) fusedOf(name string) (fused string, part, parts int) {
	found := layerOf.FindStringSubmatch(name)
	if found == nil {
		return "", 0, 0
	}
	for _, l := range e.Fused {
		if i := slices.Index(l.parts, found[3]); i >= 0 {
			return fmt.Sprintf("%s%s.%s.%s.%s", found[1], e.StoredLayers, found[2], l.name, found[4]), i, len(l.parts)
		}
	}
	return "", 0, 0
}
