// Package sample chooses the next token from a model's logits: greedily, or by
// chance after the logits processors of Hugging Face transformers, applied in
// the order of its generate: bias, repetition penalty, temperature, top-k,
// top-p, min-p. The penalties of OpenAI's API, which transformers has not,
// stand where vLLM has them: frequency and presence penalty come between the
// repetition penalty and temperature.
//
// The draw is a function of (seed, sequence, position), not of a generator's
// state: the same settings, logits and history always give the same token,
// whatever was sampled before or beside it.
package sample

import (
	"errors"
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/internal/philox"
)

var (
	// ErrSetting is the error for a setting out of its range.
	ErrSetting = errors.New("sampling setting out of range")
	// ErrLogits is the error for logits from which nothing can be chosen: a
	// NaN or +Inf among them, all of them -Inf, or none at all.
	ErrLogits = errors.New("unusable logits")
)

// Sampler holds the settings. Its zero value chooses greedily. The settings are
// float64 because transformers holds them so, and a top_p of 0.9 in float32
// keeps other tokens in rare cases.
//
// A Sampler keeps scratch memory: use one per goroutine.
type Sampler struct {
	// Temperature divides the logits. 0 chooses the most likely token
	// (do_sample=False); top-k, top-p and min-p then have no effect.
	Temperature float64
	// TopK keeps the tokens whose logit is at least the k-th largest, so more
	// than k where logits are equal. 0 keeps all.
	TopK int
	// TopP keeps the smallest set of the most likely tokens that has at least
	// this probability. 0 and 1 keep all.
	TopP float64
	// MinP keeps the tokens that are at least MinP times as likely as the most
	// likely one. 0 keeps all.
	MinP float64
	// RepetitionPenalty divides the positive and multiplies the negative logits
	// of all tokens in the history, once each (arXiv 1909.05858). It acts on
	// greedy choice too. 0 and 1 do nothing.
	RepetitionPenalty float64
	// FrequencyPenalty is taken from the logit of a token for each time that
	// the answer has it, PresencePenalty once if the answer has it at all. The
	// prompt does not count. Both are between -2 and 2, act on greedy choice
	// too, and do nothing where they are 0.
	FrequencyPenalty, PresencePenalty float64
	// Bias is added to the logits of the tokens that it names, before the
	// penalties. It is only read, so that samplers can have one in common.
	Bias map[int32]float32

	// Seed and Sequence select the draws. Sequences of one batch that have
	// different numbers draw independently of one another.
	Seed, Sequence uint64

	chosen []float32 // the scores that greedy choice chose from, or nil
	id     int32     // what was chosen
	prob   float32   // its probability, of a draw

	scores []float32   // adjusted logits
	counts []int32     // of the tokens of the answer; all 0 between two calls
	kept   []candidate // the tokens that are left, by rising id
	heap   []candidate
}

// A candidate is a token that may be chosen.
type candidate struct {
	id    int32
	score float32
}

// Validate reports the first setting that is out of its range, whatever the
// vocabulary.
func (s *Sampler) Validate() error { return s.ValidateFor(math.MaxInt) }

// ValidateFor does so for a vocabulary of so many tokens, which bounds the ids
// of the bias.
func (s *Sampler) ValidateFor(vocab int) error {
	for _, c := range []struct {
		name  string
		value float64
		ok    bool
		want  string
	}{
		{"temperature", s.Temperature, s.Temperature >= 0 && !math.IsInf(s.Temperature, 1), "0 (greedy) or more"},
		{"top_k", float64(s.TopK), s.TopK >= 0, "0 (off) or more"},
		{"top_p", s.TopP, s.TopP >= 0 && s.TopP <= 1, "between 0 and 1"},
		{"min_p", s.MinP, s.MinP >= 0 && s.MinP <= 1, "between 0 and 1"},
		{"repetition_penalty", s.RepetitionPenalty, s.RepetitionPenalty >= 0 && !math.IsInf(s.RepetitionPenalty, 1), "above 0; 1 is off"},
		{"frequency_penalty", s.FrequencyPenalty, math.Abs(s.FrequencyPenalty) <= 2, "between -2 and 2"},
		{"presence_penalty", s.PresencePenalty, math.Abs(s.PresencePenalty) <= 2, "between -2 and 2"},
	} {
		if !c.ok {
			return fmt.Errorf("%w: %s is %v, expected %s", ErrSetting, c.name, c.value, c.want)
		}
	}
	return s.checkBias(vocab)
}

// Next chooses a token. logits has one value per token of the vocabulary and
// is not changed; prompt and answer have the ids before the new token. They are
// what the penalties look at (ids outside the vocabulary count for nothing),
// and their number is the position of the draw.
//
// Where the largest logits are equal, greedy choice takes the lowest id; where
// the edge of top-p runs through equal logits, it keeps the lower ids.
func (s *Sampler) Next(logits []float32, prompt, answer []int32) (id int32, err error) {
	if err := s.ValidateFor(len(logits)); err != nil {
		return 0, err
	}
	scores := s.adjust(logits, prompt, answer)
	if err := CheckLogits(scores); err != nil {
		return 0, err
	}
	if s.Temperature == 0 {
		s.chosen, s.id = scores, greedy(scores)
		return s.id, nil
	}
	s.start(scores)
	s.warp()
	s.chosen = nil
	s.id, s.prob = s.draw(len(prompt) + len(answer))
	return s.id, nil
}

// Prob is the probability of the token that Next chose last among those that
// the settings leave; for greedy choice, its softmax over the adjusted logits,
// which is computed here, from the logits that Next was given: a small model
// has not the time for every token. 0 before the first.
func (s *Sampler) Prob() float32 {
	if s.chosen == nil {
		return s.prob
	}
	sum := 0.0
	for _, x := range s.chosen {
		sum += weight(x, s.chosen[s.id])
	}
	return float32(1 / sum)
}

// start makes every token a candidate.
func (s *Sampler) start(scores []float32) {
	s.kept = s.kept[:0]
	for id, x := range scores {
		s.kept = append(s.kept, candidate{int32(id), x})
	}
}

// CheckLogits gives ErrLogits for what softmax would turn into NaN.
func CheckLogits(logits []float32) error {
	if len(logits) == 0 {
		return fmt.Errorf("%w: there are none", ErrLogits)
	}
	if len(logits) > math.MaxInt32 {
		return fmt.Errorf("%w: %d of them, more than token ids", ErrLogits, len(logits))
	}
	bad, first, finite := 0, 0, false
	for id, x := range logits {
		switch {
		case x != x || x > math.MaxFloat32:
			if bad == 0 {
				first = id
			}
			bad++
		case x >= -math.MaxFloat32:
			finite = true
		}
	}
	if bad > 0 {
		return fmt.Errorf("%w: %d of %d are NaN or +Inf, the first is that of token %d (%v)", ErrLogits, bad, len(logits), first, logits[first])
	}
	if !finite {
		return fmt.Errorf("%w: all %d are -Inf", ErrLogits, len(logits))
	}
	return nil
}

// best is the candidate of the largest score, the first among equals.
func (s *Sampler) best() candidate {
	b := s.kept[0]
	for _, c := range s.kept[1:] {
		if c.score > b.score {
			b = c
		}
	}
	return b
}

// greedy is the largest score, the first among equals.
func greedy(scores []float32) (id int32) {
	top := scores[0]
	for i, x := range scores {
		if x > top {
			id, top = int32(i), x
		}
	}
	return id
}

// mass is the sum of exp(score - top) over the candidates.
func (s *Sampler) mass(top float32) float64 {
	var sum float64
	for _, c := range s.kept {
		sum += weight(c.score, top)
	}
	return sum
}

func weight(score, top float32) float64 { return math.Exp(float64(score) - float64(top)) }

// draw chooses a candidate with its probability.
func (s *Sampler) draw(position int) (int32, float32) {
	b := s.best()
	total := s.mass(b.score)
	rest := s.uniform(uint64(position)) * total
	last := b
	for _, c := range s.kept {
		w := weight(c.score, b.score)
		if w == 0 {
			continue
		}
		last = c
		if rest -= w; rest < 0 {
			break
		}
	}
	// Rounding may leave a rest at the end: it belongs to the last one.
	return last.id, float32(weight(last.score, b.score) / total)
}

// uniform is the draw in [0, 1) for one position: one block of Philox keyed by
// the seed.
func (s *Sampler) uniform(position uint64) float64 {
	w := philox.NewKey(s.Seed).Block(philox.Counter{
		uint32(position), uint32(position >> 32), uint32(s.Sequence), uint32(s.Sequence >> 32),
	})
	return philox.Uniform64(w[0], w[1])
}
