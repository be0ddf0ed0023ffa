package session

import "context"

// Gradients are those that have added up, by the keys of the adapter's file.
func (s *Session) Gradients(ctx context.Context) (map[string][]float32, error) {
	all, err := s.read(ctx, gradientPrefix)
	out := map[string][]float32{}
	for _, t := range all {
		x, err := t.Float32s()
		if err != nil {
			return nil, err
		}
		out[t.Key[len(gradientPrefix):]] = x
	}
	return out, err
}

// Base is that of the session.
func (s *Session) Base() *Base { return s.base }

// Bytes is its memory on the device.
func (s *Session) Bytes() int { return s.slot.Bytes() }

// SetLogits has at most so many rows of logits exist at once.
func (b *Base) SetLogits(rows int) { b.logits = 4 * b.limits.vocabulary * rows }

// Arena is the memory of the programs that are loaded, but for their arguments.
func (b *Base) Arena() int { return int(b.host.Cached()) }
