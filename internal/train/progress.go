package train

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/train/trainer"
)

// progressFormat is the version of training.json.
const progressFormat = 2

// progress is the position of a run. Together with the adapter and the moments, it is
// sufficient to resume. There is no state of a random generator: every draw is a
// function of the seed and the step.
type progress struct {
	Format  int `json:"format"`
	Step    int `json:"step"`    // optimizer steps done
	Updates int `json:"updates"` // number of steps that changed the adapter
	Skipped int `json:"skipped_in_a_row"`
	// Pending is the last step if its evaluation and its record are not done yet.
	Pending *pending `json:"pending,omitempty"`
	// BestEval and Waited are the state of early stopping. BestEval is a value of best_metric, under
	// the key of the time when that was always the loss.
	BestEval *number `json:"best_eval_loss,omitempty"`
	Waited   int     `json:"evaluations_without_progress"`
	// FirstLoss and LastLoss are of steps that changed the adapter.
	FirstLoss float64 `json:"first_loss"`
	LastLoss  float64 `json:"last_loss"`
	FirstEval *number `json:"first_eval_loss,omitempty"`
	LastEval  *number `json:"last_eval_loss,omitempty"`
	// Accuracy is the accuracy of the last evaluation, if the task has one.
	Accuracy *float64 `json:"last_eval_accuracy,omitempty"`
	Tokens   int64    `json:"tokens"`
	// Settings holds the settings that affect results. A run can resume only with the
	// same settings.
	Settings map[string]string `json:"settings"`
	// RowsBy identifies the tools and files that produced the rows. It explains why
	// rows differ, and need not match itself.
	RowsBy map[string]string `json:"rows_made_by"`
	// Sums are checksums of the files with tensors.
	Sums map[string]string `json:"checksums"`
	// Backend is the backend of the run. Another backend rounds differently.
	Backend string `json:"backend"`
}

// pending are the figures of a step that is not recorded yet.
type pending struct {
	Loss            number   `json:"loss"`
	GradNorm        number   `json:"grad_norm"`
	LearningRate    number   `json:"learning_rate"`
	TokensPerSecond number   `json:"tokens_per_second"`
	FlopsPerSecond  number   `json:"flops_per_second"`
	Means           []number `json:"rewards,omitempty"` // of the other sums of the loss
}

// means returns the means of the other sums of the loss.
func (p *pending) means() (all []float64) {
	for _, m := range p.Means {
		all = append(all, float64(m))
	}
	return all
}

// stopped reports whether the evaluations have ended the run.
func (p *progress) stopped(patience int) bool { return patience > 0 && p.Waited >= patience }

// recorded returns the last step with a record.
func (p *progress) recorded() int {
	if p.Pending != nil {
		return p.Step - 1
	}
	return p.Step
}

// number is a float64 that JSON can always represent: as in metrics.jsonl, non-finite
// values are "NaN", "Infinity" or "-Infinity".
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

// UnmarshalJSON parses the format of MarshalJSON.
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

// same compares the settings of a checkpoint and of the present run, and returns an
// error that names all differences.
func (p progress) same(now progress) error {
	if p.Format != now.Format {
		return fmt.Errorf("%w: %s has format %d, expected %d: another version of the program has written it; start anew, or end the run with that version",
			ErrCheckpoint, progressFile, p.Format, now.Format)
	}
	changed := trainer.Differences(p.Settings, now.Settings)
	if slices.ContainsFunc(changed, func(c string) bool { return strings.HasPrefix(c, "data.train ") || strings.HasPrefix(c, "data.eval ") }) {
		for _, by := range trainer.Differences(p.RowsBy, now.RowsBy) {
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
