package train

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
)

// progress is how far a run has come: with the adapter and the moments it is
// all that a run needs to go on. There is no state of a random generator:
// every draw is a function of the seed and the step.
type progress struct {
	Step    int `json:"step"`    // optimizer steps done
	Updates int `json:"updates"` // of them, those that changed the adapter
	Skipped int `json:"skipped_in_a_row"`
	// Pending is the last step where its evaluation and its record are still
	// to come.
	Pending *pending `json:"pending,omitempty"`
	// BestEval and Waited are those of early stopping.
	BestEval *number `json:"best_eval_loss,omitempty"`
	Waited   int     `json:"evaluations_without_progress"`
	// FirstLoss and LastLoss are of steps that changed the adapter.
	FirstLoss float64 `json:"first_loss"`
	LastLoss  float64 `json:"last_loss"`
	FirstEval *number `json:"first_eval_loss,omitempty"`
	LastEval  *number `json:"last_eval_loss,omitempty"`
	Tokens    int64   `json:"tokens"`
	// Settings are those on which the numbers of a run depend; a run goes on
	// only with the same.
	Settings map[string]string `json:"settings"`
}

// pending are the figures of a step that is not recorded yet.
type pending struct {
	Loss            number `json:"loss"`
	GradNorm        number `json:"grad_norm"`
	LearningRate    number `json:"learning_rate"`
	TokensPerSecond number `json:"tokens_per_second"`
	FlopsPerSecond  number `json:"flops_per_second"`
}

// stopped reports whether the evaluations have ended the run.
func (p *progress) stopped(patience int) bool { return patience > 0 && p.Waited >= patience }

// recorded is the last step with a record.
func (p *progress) recorded() int {
	if p.Pending != nil {
		return p.Step - 1
	}
	return p.Step
}

// number is a float64 that JSON can hold whatever it is: as in metrics.jsonl,
// what has no digits is "NaN", "Infinity" or "-Infinity".
type number float64

// MarshalJSON writes digits or one of the three words.
func (n number) MarshalJSON() ([]byte, error) {
	switch x := float64(n); {
	case math.IsNaN(x):
		return []byte(`"NaN"`), nil
	case math.IsInf(x, 1):
		return []byte(`"Infinity"`), nil
	case math.IsInf(x, -1):
		return []byte(`"-Infinity"`), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON reads what MarshalJSON writes.
func (n *number) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case `"NaN"`:
		*n = number(math.NaN())
		return nil
	case `"Infinity"`:
		*n = number(math.Inf(1))
		return nil
	case `"-Infinity"`:
		*n = number(math.Inf(-1))
		return nil
	}
	return json.Unmarshal(text, (*float64)(n))
}

// same compares the settings of a checkpoint with those of the run.
func (p progress) same(settings map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		if was, now := p.Settings[k], settings[k]; was != now {
			return fmt.Errorf("%w: %s was %s, is now %s; go on with the same settings, or start anew", ErrCheckpoint, k, cmp.Or(was, "not given"), cmp.Or(now, "not given"))
		}
	}
	return nil
}
