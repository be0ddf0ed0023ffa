package data

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// Problem is the kind of labels of rows, named as problem_type in config.json.
type Problem string

// Problems.
const (
	// SingleLabel rows have one class: label is its name or its id, from 0.
	SingleLabel Problem = "single_label_classification"
	// MultiLabel rows have any number of classes: label is a list of names or ids, or has 0 or 1 for each class.
	MultiLabel Problem = "multi_label_classification"
	// Regression rows have one number.
	Regression Problem = "regression"
)

// expects describes a valid label, or a part of one.
func (p Problem) expects(where string) string {
	switch {
	case p == Regression:
		return "a number of float32"
	case p == MultiLabel && where == "label":
		return "a list of names or of ids of classes, or of 0 or 1 for each class"
	}
	return "the name or the id of a class"
}

// label is the parsed label of a row.
type label struct {
	form    form
	names   []string
	numbers []float64
	place   place
}

// form is the form of the parts of a label, empty for an empty label.
type form string

const (
	nameForm   form = "names of classes"
	idForm     form = "ids of classes"
	flagForm   form = "0.0 and 1.0"
	numberForm form = "numbers"
)

// parseLabel parses the label of a line.
func parseLabel(raw json.RawMessage, p Problem) (*label, error) {
	l := &label{}
	switch p {
	case MultiLabel:
		var list []json.RawMessage
		if raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
			return nil, refuseLabel("label", raw, p)
		}
		for i, item := range list {
			if err := l.add(item, fmt.Sprintf("label[%d]", i), p); err != nil {
				return nil, err
			}
		}
		return l, nil
	case Regression:
		if v, ok := finite(raw); ok {
			l.form, l.numbers = numberForm, []float64{v}
			return l, nil
		}
		return nil, refuseLabel("label", raw, p)
	}
	return l, l.add(raw, "label", p)
}

// add appends a class to the label.
func (l *label) add(raw json.RawMessage, where string, p Problem) error {
	form := idForm
	switch v, ok := finite(raw); {
	case raw[0] == '"':
		var name string
		if err := json.Unmarshal(raw, &name); err != nil {
			return problem(ErrFormat, "%s: not valid JSON: %v", where, err)
		}
		if name == "" {
			return problem(ErrLabel, "%s: found an empty name, expected that of a class", where)
		}
		form, l.names = nameForm, append(l.names, name)
	case !ok:
		return refuseLabel(where, raw, p)
	case isWhole(raw):
		l.numbers = append(l.numbers, v)
	case p == MultiLabel && (v == 0 || v == 1): // 0.0 or 1.0
		form, l.numbers = flagForm, append(l.numbers, v)
	default:
		return refuseLabel(where, raw, p)
	}
	switch {
	case l.form == "" || l.form == idForm && form == flagForm:
		l.form = form
	case l.form != form && (l.form != flagForm || form != idForm):
		return problem(ErrMixed, "%s: found %s beside %s", where, form, l.form)
	}
	return nil
}

// refuseLabel returns an error with the expected form of a label, or of a part of one.
func refuseLabel(where string, raw json.RawMessage, p Problem) error {
	found, hint := describe(raw), ""
	_, number := finite(raw)
	switch {
	case number || found == "a number":
		found = shorten(string(raw))
		if p == SingleLabel && number && !isWhole(raw) {
			hint = " (numbers are learned with the problem regression)"
		}
	case raw[0] == '[' && p == SingleLabel:
		hint = " (several classes of a text are learned with the problem multi_label_classification)"
	case raw[0] == '"' && p != SingleLabel:
		found = shorten(found + " " + string(raw))
		hint = " (one class of each text is learned with the problem single_label_classification)"
	case raw[0] == 't' || raw[0] == 'f':
		hint = " (true and false are no numbers here: write 1 and 0, or names)"
	}
	return problem(ErrFormat, "%s: found %s, expected %s%s", where, found, p.expects(where), hint)
}

// finite parses a JSON number in the range of float32.
func finite(raw json.RawMessage) (float64, bool) {
	if raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return 0, false
	}
	v, err := strconv.ParseFloat(string(raw), 64)
	return v, err == nil && math.Abs(v) <= math.MaxFloat32
}

// isWhole reports whether a JSON number is written as an integer.
func isWhole(raw json.RawMessage) bool { return !bytes.ContainsAny(raw, ".eE") }

// shorten truncates a text for error messages.
func shorten(s string) string {
	const most = 40
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
