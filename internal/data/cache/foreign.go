package cache

import (
	"bytes"
	"encoding/binary"

	"github.com/lorafuse/lorafuse/tensor"
)

// foreignShapes converts the shapes of an entry of another program to our layout: some programs keep a batch axis of
// size one, or omit the mask if all tokens are real.
func foreignShapes(s shapes) shapes {
	for name, x := range s {
		s[name] = typed{x.dtype, withoutBatch(name, x.shape)}
	}
	if embeds, ok := s[embedsName]; ok && len(embeds.shape) == 2 && s[maskName].shape == nil {
		s[maskName] = typed{tensor.I64.String(), embeds.shape[:1]}
	}
	return s
}

// foreignTensors converts tensors in the same way as foreignShapes.
func foreignTensors(t tensors) tensors {
	for name, x := range t {
		x.Shape = withoutBatch(name, x.Shape)
		t[name] = x
	}
	if embeds, ok := t[embedsName]; ok && t[maskName].Shape == nil {
		one := binary.LittleEndian.AppendUint64(nil, 1)
		t[maskName] = tensor.Tensor{DType: tensor.I64, Shape: embeds.Shape[:1], Data: bytes.Repeat(one, embeds.Shape[0])}
	}
	return t
}

// withoutBatch removes a batch axis of size one from a shape. A latent with 4 axes has one if the first axis cannot be
// the channels, since these are never of size one.
func withoutBatch(name string, shape []int) []int {
	most := map[string]int{embedsName: 2, maskName: 1, pooledName: 1, latentName: 4}[name]
	batch := len(shape) == most+1
	if name == latentName && len(shape) == 4 {
		batch = shape[1] > 1
	}
	if batch && shape[0] == 1 {
		return shape[1:]
	}
	return shape
}
