package train

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// progressFormat is the version of training.json.
const progressFormat = 2

// progress is how far a run has come: with the adapter and the moments it is
// all that a run needs to go on. There is no state of a random generator:
// every draw is a function of the seed and the step.
type progress struct {
	Format  int `json:"format"`
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
	// Accuracy is that of the last evaluation, where the task has one.
	Accuracy *float64 `json:"last_eval_accuracy,omitempty"`
	Tokens   int64    `json:"tokens"`
	// Settings are those on which the numbers of a run depend; a run goes on
	// only with the same.
	Settings map[string]string `json:"settings"`
	// RowsBy is what the rows were made by. It explains rows that differ and
	// binds nothing itself.
	RowsBy map[string]string `json:"rows_made_by"`
	// Sums are checksums of the files with tensors.
	Sums map[string]string `json:"checksums"`
	// Backend is what the run computed on. Another one rounds otherwise.
	Backend string `json:"backend"`
}

// pending are the figures of a step that is not recorded yet.
type pending struct {
	Loss            number     `json:"loss"`
	GradNorm        number     `json:"grad_norm"`
	LearningRate    number     `json:"learning_rate"`
	TokensPerSecond number     `json:"tokens_per_second"`
	FlopsPerSecond  number     `json:"flops_per_second"`
	Rewards         *[3]number `json:"rewards,omitempty"` // chosen, rejected, accuracy
}

// rewards are those of the step, nil where it has none.
func (p *pending) rewards() *Rewards {
	if p.Rewards == nil {
		return nil
	}
	return &Rewards{float64(p.Rewards[0]), float64(p.Rewards[1]), float64(p.Rewards[2])}
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

// same compares what the run of a checkpoint depends on with what the run now
// does, and names all that differs.
func (p progress) same(now progress) error {
	if p.Format != now.Format {
		return fmt.Errorf("%w: %s has format %d, expected %d: another version of the program has written it; start anew, or end the run with that version",
			ErrCheckpoint, progressFile, p.Format, now.Format)
	}
	changed := differences(p.Settings, now.Settings)
	if slices.ContainsFunc(changed, func(c string) bool { return strings.HasPrefix(c, "data.train ") || strings.HasPrefix(c, "data.eval ") }) {
		for _, by := range differences(p.RowsBy, now.RowsBy) {
			if !slices.Contains(changed, by) {
				changed = append(changed, by)
			}
		}
	}
	if len(changed) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s; go on with the same, or start anew", ErrCheckpoint, strings.Join(changed, "; "))
}

// differences names the keys that have not the same value in both.
func differences(was, now map[string]string) []string {
	all := maps.Clone(was)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, now)
	var out []string
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if was[k] != now[k] {
			out = append(out, fmt.Sprintf("%s was %s, is now %s", k, cmp.Or(was[k], "not given"), cmp.Or(now[k], "not given")))
		}
	}
	return out
}
