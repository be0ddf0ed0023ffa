package model

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/nn"
)

// InBlocks returns the model's weights for a device that computes with the block types of other
// programs. Weights keep such a type if a file stores them in it (GGUF) or in another layout of
// the same contents (GPTQ, AWQ, gpt-oss). [Model.Weight] widens
// them instead.
func (m *Model) InBlocks() nn.Weights { return inBlocks{m} }

type inBlocks struct{ *Model }

func (m inBlocks) Weight(name string) (nn.Weight, error) {
	if of, ok := transposedOf(name); ok {
		if two := m.storedMXFP4(of); two != nil {
			return m.mxfp4(two)
		}
	}
	stored := m.inFile(name)
	if _, fresh := m.fresh[name]; fresh || m.converted[stored] != nil {
		return m.Model.Weight(name)
	}
	b, ok, err := m.set.Blocks(stored)
	if err != nil {
		return nn.Weight{}, fmt.Errorf("tensor %q: %w", stored, err)
	}
	if !ok {
		return m.Model.Weight(name)
	}
	return weightOf(b.View, b.DType, b.Shape, false)
}
