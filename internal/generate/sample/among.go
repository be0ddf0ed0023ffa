package sample

import (
	"cmp"
	"math"
	"slices"
)

// Candidates are the most likely tokens of a row of logits. A device selects them, so that the host needs the other
// logits only if the choice depends on them.
type Candidates struct {
	IDs    []int32 // the largest logit first; of equal logits, the lower id first
	Logits []float32
	Vocab  int // number of logits of the row
	// LogMass is log Σ exp((x - top)/Temperature) over all logits x of the row, where top is the largest. It was summed
	// in float32.
	LogMass     float32
	Temperature float32
}

// Bounds of the difference between sums of the device and sums of topP.
const (
	massError  = 1e-4            // relative, of exp(LogMass)
	scoreError = 1.0 / (1 << 20) // of LogMass, relative to the largest score
	tailError  = 1.0 / (1 << 20) // of a sum of probabilities that are rounded to float32
	maxLogMass = 64              // of any vocabulary
)

// NeedsLogits reports whether the choice always depends on more logits than the k largest of vocab.
func (s *Sampler) NeedsLogits(k, vocab int) bool {
	penalized := s.RepetitionPenalty != 0 && s.RepetitionPenalty != 1 || s.FrequencyPenalty != 0 || s.PresencePenalty != 0
	switch {
	case len(s.Bias) > 0 || penalized:
		return true
	case s.Temperature == 0:
		return false
	}
	return k < vocab && !(s.TopK > 0 && s.TopK < k) && !s.cuts()
}

// cuts reports whether top-p alone restricts the tokens.
func (s *Sampler) cuts() bool { return s.TopK == 0 && s.TopP > 0 && s.TopP < 1 }

// NextAmong chooses the token that Next would choose from all logits, for the given position of the draw. ok is false if
// the choice may depend on logits that are not among the candidates, or if Next would return an error. Prob is the same
// as after Next, except that it has the precision of LogMass for greedy choice.
func (s *Sampler) NextAmong(c Candidates, position int) (id int32, ok bool) {
	// A NaN or +Inf would be the first candidate.
	if len(c.IDs) == 0 || !(math.Abs(float64(c.Logits[0])) <= math.MaxFloat32) || s.NeedsLogits(len(c.IDs), c.Vocab) {
		return 0, false
	}
	s.chosen, s.id = nil, c.IDs[0]
	if s.Temperature == 0 {
		s.prob = float32(math.Exp(-float64(c.LogMass)))
		return s.id, true
	}
	s.kept = s.kept[:0]
	for i, id := range c.IDs {
		s.kept = append(s.kept, candidate{id, c.Logits[i] / float32(s.Temperature)})
	}
	last := s.kept[len(s.kept)-1].score // no other token has a larger score
	switch {
	case math.IsInf(float64(s.kept[0].score), 0):
		s.kept = append(s.kept[:0], candidate{id: s.id}) // as warp does
	case len(c.IDs) == c.Vocab:
		s.byID()
		s.filter()
	case s.TopK > 0:
		if s.kept[s.TopK-1].score == last {
			return 0, false // so may be others
		}
		s.byID()
		s.filter()
	default:
		if !s.topPAmong(c, last) {
			return 0, false
		}
		s.byID()
		if s.MinP > 0 {
			s.minP()
		}
	}
	s.id, s.prob = s.draw(position)
	return s.id, true
}

// byID sorts the candidates as Next has them.
func (s *Sampler) byID() {
	slices.SortFunc(s.kept, func(a, b candidate) int { return cmp.Compare(a.id, b.id) })
}

// topPAmong drops the candidates that topP would drop of all tokens. The sum over all tokens is known up to rounding:
// topPAmong returns false if that decides which tokens are dropped, or if tokens are kept that are no candidates.
func (s *Sampler) topPAmong(c Candidates, last float32) bool {
	if c.Temperature != float32(s.Temperature) || !(c.LogMass >= -massError && c.LogMass <= maxLogMass) {
		return false
	}
	slices.SortFunc(s.kept, func(a, b candidate) int { // scores may be equal where logits are not
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.id, b.id))
	})
	top := s.kept[0].score
	mass := math.Exp(float64(c.LogMass))
	wrong := massError + scoreError*math.Abs(float64(top))
	rest := float32(1 - s.TopP)
	sum := weight(top, top) // of the tokens that are kept
	for i, x := range s.kept[1:] {
		if float32(1-sum/mass*(1-wrong)+tailError) <= rest {
			s.kept = s.kept[:i+1]
			return s.kept[i].score > last // others may come before a token whose score equals the last
		}
		if float32(1-sum/mass*(1+wrong)-tailError) <= rest {
			return false
		}
		sum += weight(x.score, top)
	}
	return false
}
