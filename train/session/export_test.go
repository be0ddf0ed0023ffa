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
