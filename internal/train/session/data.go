package session

import (
	"math"
	"strconv"
)

// Datum is a text with the training target of each token. Arrays that a loss does not
// read are absent.
type Datum struct {
	Tokens []int32
	// Targets holds the K targets of each token, row by row; a target is usually the
	// next token. Zero K means 1.
	Targets []int32
	K       int

	Weights           []float32 // of the targets, for cross_entropy; absent: 1
	Logprobs          []float32 // of the targets when they were drawn
	Advantages        []float32 // of having drawn them
	ClipLow, ClipHigh []float32 // by token, overriding the settings of the loss
}

// width returns the number of targets of a token.
func (d *Datum) width() int { return max(1, d.K) }

// limits holds the input limits of a model.
type limits struct{ tokens, vocabulary int }

// check rejects a datum that is invalid for the loss or the model.
func (d *Datum) check(l *loss, m limits) error {
	n, k := len(d.Tokens), d.width()
	switch {
	case n == 0:
		return invalid("tokens", "found none, expected 1 or more")
	case n > m.tokens:
		return invalid("tokens", "found %d, expected at most %d, as many as the model takes", n, m.tokens)
	case d.K < 0:
		return invalid("K", "found %d, expected 1 or more targets of a token", d.K)
	case k > 1 && !l.many:
		return invalid("target_tokens", "found %d for each token, and %s takes one; cross_entropy takes several", k, l.name)
	case len(d.Targets) != n*k:
		return invalid("target_tokens", "found %d, expected %d, as many as tokens%s", len(d.Targets), n*k, times(k))
	}
	for _, x := range []struct {
		name string
		ids  []int32
	}{{"tokens", d.Tokens}, {"target_tokens", d.Targets}} {
		for i, id := range x.ids {
			if id < 0 || int(id) >= m.vocabulary {
				return invalid(x.name, "found %d at %d, expected 0 to %d, the vocabulary of the model", id, i, m.vocabulary-1)
			}
		}
	}
	for _, x := range []struct {
		name   string
		values []float32
		reads  reads
	}{
		{"weights", d.Weights, l.weights}, {"logprobs", d.Logprobs, l.logprobs}, {"advantages", d.Advantages, l.advantages},
		{"clip_low_threshold", d.ClipLow, l.clip}, {"clip_high_threshold", d.ClipHigh, l.clip},
	} {
		switch {
		case x.values == nil && x.reads == always:
			return invalid(x.name, "found none, and %s reads them", l.name)
		case x.values == nil:
			continue
		case x.reads == never:
			return invalid(x.name, "%s does not read them", l.name)
		case len(x.values) != n*k:
			return invalid(x.name, "found %d, expected %d, as many as target_tokens", len(x.values), n*k)
		}
		for i, v := range x.values {
			if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
				return invalid(x.name, "found %v at %d, expected a finite number", v, i)
			}
		}
	}
	for i := range max(len(d.ClipLow), len(d.ClipHigh)) {
		if low, high := l.thresholds(d, i); low < 0 || low > high {
			return invalid("clip_low_threshold", "found %v at %d, expected 0 to %v, which clip_high_threshold is", low, i, high)
		}
	}
	return nil
}

func times(k int) string {
	if k == 1 {
		return ""
	}
	return " times " + strconv.Itoa(k)
}
