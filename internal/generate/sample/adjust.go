package sample

import (
	"fmt"
	"math"
)

// adjust returns the logits with bias and penalties applied: scratch memory, or logits itself if there are none. Each
// step rounds to float32, on every machine.
func (s *Sampler) adjust(logits []float32, prompt, answer []int32) []float32 {
	repetition := float32(s.RepetitionPenalty)
	repeats := repetition != 0 && repetition != 1
	counts := s.FrequencyPenalty != 0 || s.PresencePenalty != 0
	if len(s.Bias) == 0 && !repeats && !counts {
		return logits
	}
	s.scores = append(s.scores[:0], logits...)
	for id, b := range s.Bias {
		s.scores[id] += b
	}
	if repeats {
		s.repeated(logits, prompt, repetition)
		s.repeated(logits, answer, repetition)
	}
	if counts {
		s.counted(answer)
	}
	return s.scores
}

// repeated applies the repetition penalty p to the tokens of ids.
func (s *Sampler) repeated(logits []float32, ids []int32, p float32) {
	for _, id := range ids {
		if id < 0 || int(id) >= len(logits) {
			continue
		}
		// Use the original logit, so that a repeated id is penalized once.
		x := logits[id]
		if len(s.Bias) > 0 {
			x += s.Bias[id]
		}
		if x < 0 {
			s.scores[id] = x * p
		} else {
			s.scores[id] = x / p
		}
	}
}

// counted applies the frequency and presence penalties.
func (s *Sampler) counted(answer []int32) {
	if len(s.counts) < len(s.scores) {
		s.counts = make([]int32, len(s.scores))
	}
	for _, id := range answer {
		if id >= 0 && int(id) < len(s.scores) {
			s.counts[id]++
		}
	}
	frequency, presence := float32(s.FrequencyPenalty), float32(s.PresencePenalty)
	for _, id := range answer {
		if id < 0 || int(id) >= len(s.scores) || s.counts[id] == 0 {
			continue
		}
		s.scores[id] -= float32(frequency * float32(s.counts[id]))
		s.scores[id] -= presence
		s.counts[id] = 0
	}
}

// checkBias returns an error for the lowest id with an invalid bias.
func (s *Sampler) checkBias(vocab int) error {
	worst, found := int32(0), false
	for id, b := range s.Bias {
		finite := math.Abs(float64(b)) <= math.MaxFloat32
		if (id < 0 || int(id) >= vocab || !finite) && (!found || id < worst) {
			worst, found = id, true
		}
	}
	switch {
	case !found:
		return nil
	case worst < 0 || int(worst) >= vocab:
		return fmt.Errorf("%w: logit_bias of token %d, expected ids from 0 to %d", ErrSetting, worst, min(vocab-1, math.MaxInt32))
	}
	return fmt.Errorf("%w: logit_bias of token %d is %v, expected a number", ErrSetting, worst, s.Bias[worst])
}
