package cache

import (
	"bytes"
	"encoding/binary"

	"github.com/lorafuse/lorafuse/tensor"
)

// foreignShapes are the shapes of an entry that another program has written, as ours would
// be: some leave in the axis of a batch of one, and no mask says that all tokens are real.
func foreignShapes(s shapes) shapes {
	for name, x := range s {
		s[name] = typed{x.dtype, withoutBatch(name, x.shape)}
	}
	if embeds, ok := s[embedsName]; ok && len(embeds.shape) == 2 && s[maskName].shape == nil {
		s[maskName] = typed{tensor.I64.String(), embeds.shape[:1]}
	}
	return s
}

// foreignTensors are the tensors that go with foreignShapes.
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

// withoutBatch is the shape of a tensor without the axis of a batch of one. Latents of 4
// axes have one where the first can be no channels, since there is one alone.
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
