// Package events records what happens in a training run: metrics.jsonl for
// programs, TensorBoard event files for TensorBoard, runs of MLflow, and a plot of the loss.
//
// The logs on disk belong to a run that may be killed and resumed. Opened with the
// step that the resumed run begins after, they first forget everything later,
// so that in the end they read as if the run had never been interrupted.
package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// Names of scalars that this package itself knows.
const (
	Loss     = "loss"      // mean training loss, nats per token
	EvalLoss = "eval_loss" // the same on the evaluation set

	EvalAccuracy = "eval_accuracy" // share of its tokens that are predicted right, or of its rows that are classified right

	RewardAccuracy = "rewards/accuracies" // share of the training rows whose preferred answer has the larger reward
)

// ErrRecord is the error for a record that cannot be written or read.
var ErrRecord = errors.New("bad metrics record")

// A Record holds the values measured at one step.
type Record struct {
	Step    int64
	Scalars []Scalar // in the order of the file
}

// A Scalar is one measured value.
type Scalar struct {
	Name  string
	Value float64
}

// Value returns the scalar with that name.
func (r Record) Value(name string) (float64, bool) {
	for _, s := range r.Scalars {
		if s.Name == name {
			return s.Value, true
		}
	}
	return 0, false
}

// stepKey is the JSON key of the step.
const stepKey = "step"

// MarshalJSON writes {"step":10,"loss":1.25}: numbers with enough digits to restore the same float64, in the order of
// Scalars. Non-finite numbers are "NaN", "Infinity" or "-Infinity", as in the JSON of protocol buffers.
func (r Record) MarshalJSON() ([]byte, error) {
	b := fmt.Appendf(nil, `{"%s":%d`, stepKey, r.Step)
	for i, s := range r.Scalars {
		if s.Name == "" || s.Name == stepKey {
			return nil, fmt.Errorf("%w: step %d has a scalar named %q", ErrRecord, r.Step, s.Name)
		}
		for _, before := range r.Scalars[:i] {
			if before.Name == s.Name {
				return nil, fmt.Errorf("%w: step %d has two scalars named %q", ErrRecord, r.Step, s.Name)
			}
		}
		name, err := json.Marshal(s.Name)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, ','), name...), ':')
		switch {
		case math.IsNaN(s.Value):
			b = append(b, `"NaN"`...)
		case math.IsInf(s.Value, 1):
			b = append(b, `"Infinity"`...)
		case math.IsInf(s.Value, -1):
			b = append(b, `"-Infinity"`...)
		default:
			value, err := json.Marshal(s.Value)
			if err != nil {
				return nil, err
			}
			b = append(b, value...)
		}
	}
	return append(b, '}'), nil
}

// UnmarshalJSON parses the output of MarshalJSON.
func (r *Record) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("%w: not a JSON object", ErrRecord)
	}
	var out Record
	hasStep := false
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrRecord, err)
		}
		name := key.(string) // the decoder lets nothing else through
		value, err := d.Token()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrRecord, err)
		}
		if name == stepKey {
			n, ok := value.(json.Number)
			if !ok || hasStep {
				return fmt.Errorf("%w: step is %v, expected one integer", ErrRecord, value)
			}
			if out.Step, err = n.Int64(); err != nil {
				return fmt.Errorf("%w: step is %v, expected one integer", ErrRecord, n)
			}
			hasStep = true
			continue
		}
		x, ok := number(value)
		if !ok {
			return fmt.Errorf("%w: %q is %v, expected a number", ErrRecord, name, value)
		}
		out.Scalars = append(out.Scalars, Scalar{name, x})
	}
	if !hasStep {
		return fmt.Errorf("%w: no step", ErrRecord)
	}
	*r = out
	return nil
}

func number(token json.Token) (float64, bool) {
	switch v := token.(type) {
	case json.Number:
		x, err := v.Float64()
		return x, err == nil
	case string:
		switch v {
		case "NaN":
			return math.NaN(), true
		case "Infinity":
			return math.Inf(1), true
		case "-Infinity":
			return math.Inf(-1), true
		}
	}
	return 0, false
}
