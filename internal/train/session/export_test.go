package session

import (
	"context"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// Gradients are those that have added up, by the keys of the adapter's file.
func (s *Session) Gradients(ctx context.Context) (map[string][]float32, error) {
	out := map[string][]float32{}
	for _, t := range s.trainer.Trained() {
		out[t.Name] = make([]float32, ir.ShapeOf(t.Shape...).Elements(nil))
		if err := s.trainer.Gradient(ctx, t.Name, out[t.Name]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Adapter returns a copy of the current adapter.
func (s *Session) Adapter(ctx context.Context) (*lora.Adapter, error) {
	values, err := s.values(ctx)
	if err != nil {
		return nil, err
	}
	var tensors []lora.Tensor
	for _, t := range s.trainer.Trained() {
		tensors = append(tensors, lora.Tensor{Key: t.Name, Tensor: tensor.Tensor{DType: tensor.F32, Shape: t.Shape, Data: tensor.BytesOf(values[t.Name])}})
	}
	return lora.New(s.state.Placement.Config(), tensors)
}

// Bytes is its memory on the device.
func (s *Session) Bytes() int { return s.slot.Bytes() }

// SetLogits has at most so many rows of logits exist at once.
func (s *Session) SetLogits(rows int) { s.logits = 4 * s.model.vocabulary * rows }
