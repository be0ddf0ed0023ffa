// Package sample chooses the next token from the logits of a model, greedily or by random sampling. It applies the
// logits processors of Hugging Face transformers in the same order: bias, repetition penalty, temperature, top-k,
// top-p, min-p. OpenAI's frequency and presence penalties, which transformers lacks, are applied after the repetition
// penalty, as in vLLM. [Sampler.Next] is the entry point.
//
// The draw is a function of (seed, sequence, position) instead of the state of a generator. The same settings, logits
// and history always give the same token, regardless of earlier samples and other sequences.
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
	// ErrLogits is the error for unusable logits: they contain NaN or +Inf, are all -Inf, or are empty.
	ErrLogits = errors.New("unusable logits")
)

// Sampler holds sampling settings. The zero value chooses greedily. The settings are float64 as in transformers; a
// top_p of 0.9 in float32 would keep other tokens in rare cases.
//
// A Sampler has scratch memory, so use one per goroutine.
type Sampler struct {
	// Temperature divides the logits. 0 chooses the most likely token (do_sample=False); top-k, top-p and min-p then
	// have no effect.
	Temperature float64
	// TopK keeps the tokens whose logit is at least the k-th largest, which may be more than k if logits are equal. 0
	// keeps all.
	TopK int
	// TopP keeps the smallest set of most likely tokens with at least this total probability. 0 and 1 keep all.
	TopP float64
	// MinP keeps the tokens that are at least MinP times as likely as the most
	// likely one. 0 keeps all.
	MinP float64
	// RepetitionPenalty divides positive and multiplies negative logits of all tokens in the history, once each (arXiv
	// 1909.05858). It also affects greedy choice. 0 and 1 have no effect.
	RepetitionPenalty float64
	// FrequencyPenalty is subtracted from the logit of a token once per occurrence in the answer, PresencePenalty once
	// if it occurs at all. The prompt does not count. Both are between -2 and 2, also affect greedy choice, and have no
	// effect if 0.
	FrequencyPenalty, PresencePenalty float64
	// Bias is added to the logits of its tokens, before the penalties. It is only read, so samplers can share it.
	Bias map[int32]float32

	// Seed and Sequence select the random draws. Sequences of a batch with different numbers draw independently.
	Seed, Sequence uint64

	chosen []float32 // input of the greedy choice, or nil
	id     int32     // the chosen token
	prob   float32   // its probability, if it was drawn

	scores []float32   // adjusted logits
	counts []int32     // by token of the answer; all 0 between calls
	kept   []candidate // the remaining tokens, by ascending id
	heap   []candidate
}

// candidate is a token that may be chosen.
type candidate struct {
	id    int32
	score float32
}

// Validate returns an error for the first setting out of range, for any vocabulary.
func (s *Sampler) Validate() error { return s.ValidateFor(math.MaxInt) }

// ValidateFor returns an error for the first setting out of range, for a vocabulary of vocab tokens, which limits the
// ids of the bias.
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

// Next chooses a token. logits has one value per token of the vocabulary and is not changed. prompt and answer hold the
// ids before the new token: the penalties use them (ignoring ids outside the vocabulary), and their number is the
// position of the draw.
//
// Among equal largest logits, greedy choice takes the lowest id. If the limit of top-p falls among equal logits, the
// lower ids are kept.
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

// Prob returns the probability of the last token that Next chose, among the tokens that the settings allow, or 0 before
// the first call. For greedy choice it is the softmax of the adjusted logits, computed only on this call, from the
// logits passed to Next, since it would slow down small models.
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

// CheckLogits returns ErrLogits for logits whose softmax would be NaN.
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

// best returns the candidate with the largest score, the first among equals.
func (s *Sampler) best() candidate {
	b := s.kept[0]
	for _, c := range s.kept[1:] {
		if c.score > b.score {
			b = c
		}
	}
	return b
}

// greedy returns the id of the largest score, the first among equals.
func greedy(scores []float32) (id int32) {
	top := scores[0]
	for i, x := range scores {
		if x > top {
			id, top = int32(i), x
		}
	}
	return id
}

// mass returns the sum of exp(score - top) over the candidates.
func (s *Sampler) mass(top float32) float64 {
	var sum float64
	for _, c := range s.kept {
		sum += weight(c.score, top)
	}
	return sum
}

func weight(score, top float32) float64 { return math.Exp(float64(score) - float64(top)) }

// draw chooses a candidate at random, by its probability.
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
	// Rounding may leave a rest at the end, which belongs to the last candidate.
	return last.id, float32(weight(last.score, b.score) / total)
}

// uniform returns the random number in [0, 1) for a position: one block of Philox keyed by the seed.
func (s *Sampler) uniform(position uint64) float64 {
	w := philox.NewKey(s.Seed).Block(philox.Counter{
		uint32(position), uint32(position >> 32), uint32(s.Sequence), uint32(s.Sequence >> 32),
	})
	return philox.Uniform64(w[0], w[1])
}
