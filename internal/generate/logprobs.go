package generate

import (
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/internal/generate/sample"
	"github.com/lorafuse/lorafuse/internal/vec"
)

// Logprobs holds the model's log-probabilities, in nats, of a token and of the most likely
// alternatives.
type Logprobs struct {
	ID      int32
	Logprob float32
	Top     []Logprob // the most likely first; among equals, the lower id first
}

// Logprob is the log-probability of a token.
type Logprob struct {
	ID      int32
	Logprob float32
}

// NewLogprobs returns the log-softmax of logits for a token and for the top most likely
// ones, fewer if the vocabulary is smaller. The CPU backend's cross-entropy uses the same
// formula: equal logits give the trainer's log-probabilities, bit for bit. A logit of -Inf
// gives -Inf. Errors: sample.ErrLogits; ErrToken for an id that has no logit.
func NewLogprobs(logits []float32, id int32, top int) (Logprobs, error) {
	if err := sample.CheckLogits(logits); err != nil {
		return Logprobs{}, fmt.Errorf("generate: log-probabilities: %w", err)
	}
	if id < 0 || int(id) >= len(logits) {
		return Logprobs{}, fmt.Errorf("generate: log-probabilities: %w: id %d of %d logits", ErrToken, id, len(logits))
	}
	normalizer := vec.LogNormalizer(logits)
	l := Logprobs{ID: id, Logprob: vec.LogProb(logits[id], normalizer), Top: largest(logits, top)}
	for i := range l.Top {
		l.Top[i].Logprob = vec.LogProb(l.Top[i].Logprob, normalizer)
	}
	return l, nil
}

// largest returns the n largest logits in descending order. It uses a heap whose root is the
// smallest of them, so most logits are compared with the root alone.
func largest(logits []float32, n int) []Logprob {
	n = min(n, len(logits))
	if n < 1 {
		return nil
	}
	heap := make([]Logprob, n)
	for id, x := range logits[:n] {
		heap[id] = Logprob{int32(id), x}
	}
	for i := n/2 - 1; i >= 0; i-- {
		sink(heap, i)
	}
	for i, x := range logits[n:] {
		// An equal one has the higher id.
		if x > heap[0].Logprob {
			heap[0] = Logprob{int32(n + i), x}
			sink(heap, 0)
		}
	}
	slices.SortFunc(heap, compare)
	return heap
}

// compare orders larger values first, and equal values by id.
func compare(a, b Logprob) int {
	switch {
	case a.Logprob > b.Logprob:
		return -1
	case a.Logprob < b.Logprob:
		return 1
	}
	return int(a.ID) - int(b.ID)
}

// sink moves h[i] down to its place in the heap whose root is the last by compare.
func sink(h []Logprob, i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && compare(h[child+1], h[child]) > 0 {
			child++
		}
		if compare(h[child], h[i]) < 0 {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
