package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// fields are those of a JSON object that a client sent, asked for by name. What is not
// there, or null, is what it normally is. The first that is not what it should be is err;
// that is to be looked at when all have been asked for.
type fields struct {
	values  map[string]json.RawMessage
	asked   map[string]bool // names that have been asked for
	within  string          // the name of the object and a dot, empty for the body itself
	objects []*fields       // read with object
	err     *failure
}

// parseFields reads the body of a request.
func parseFields(raw []byte) (*fields, error) {
	if !utf8.Valid(raw) {
		return nil, &failure{status: http.StatusBadRequest, message: "the body is not UTF-8"}
	}
	f := &fields{}
	err := json.Unmarshal(raw, &f.values)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax) && len(raw) == 0:
		return nil, &failure{status: http.StatusBadRequest, message: "the body is empty, expected a JSON object"}
	case errors.As(err, &syntax):
		return nil, &failure{status: http.StatusBadRequest, message: fmt.Sprintf("the body is no JSON: %v, at byte %d", err, syntax.Offset)}
	case err != nil || f.values == nil:
		return nil, &failure{status: http.StatusBadRequest, message: fmt.Sprintf("found %s, expected a JSON object", brief(raw))}
	}
	return f, nil
}

// brief is a value for an error message.
func brief(raw []byte) string {
	const most = 60
	if len(raw) <= most {
		return string(raw)
	}
	end := most
	for end > 0 && !utf8.RuneStart(raw[end]) {
		end--
	}
	return string(raw[:end]) + "…"
}

// fault notes what is wrong with a field, if it is the first.
func (f *fields) fault(name, format string, args ...any) {
	if f.err == nil {
		name = f.within + name
		f.err = invalid(name, "%s: %s", name, fmt.Sprintf(format, args...))
	}
}

// unexpected is the fault of a value that is not what was expected.
func (f *fields) unexpected(name, expected string) {
	f.fault(name, "found %s, expected %s", brief(f.values[name]), expected)
}

// failed is err as an error.
func (f *fields) failed() error {
	if f.err != nil {
		return f.err
	}
	return nil
}

// raw returns the JSON of a field, nil if there is none.
func (f *fields) raw(name string) json.RawMessage {
	if f.asked == nil {
		f.asked = map[string]bool{}
	}
	f.asked[name] = true
	v := f.values[name]
	if string(v) == "null" {
		return nil
	}
	return v
}

func (f *fields) has(name string) bool { return f.raw(name) != nil }

// into reads a field, and tells whether it is there and what was expected.
func (f *fields) into(name string, v any, expected string) bool {
	raw := f.raw(name)
	if raw == nil {
		return false
	}
	if err := json.Unmarshal(raw, v); err != nil {
		f.unexpected(name, expected)
		return false
	}
	return true
}

func (f *fields) flag(name string, normal bool) bool {
	v := normal
	f.into(name, &v, "true or false")
	return v
}

func (f *fields) text(name string) string {
	var v string
	f.into(name, &v, "a string")
	return v
}

// integer is a whole number from least to most.
func (f *fields) integer(name string, normal, least, most int) int {
	if v, ok := f.wholeNumber(name, expectedRange(float64(least), float64(most), "a whole number"), int64(least), int64(most)); ok {
		return int(v)
	}
	return normal
}

func (f *fields) wholeNumber(name, expected string, least, most int64) (int64, bool) {
	raw := f.raw(name)
	if raw == nil {
		return 0, false
	}
	v, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil { // 16.0 is one too
		x, floatErr := strconv.ParseFloat(string(raw), 64)
		if floatErr != nil || x != math.Trunc(x) || math.Abs(x) > 1<<53 {
			f.unexpected(name, expected)
			return 0, false
		}
		v = int64(x)
	}
	if v < least || v > most {
		f.unexpected(name, expected)
		return 0, false
	}
	return v, true
}

// number is one from least to most.
func (f *fields) number(name string, normal, least, most float64) float64 {
	v, expected := normal, expectedRange(least, most, "a number")
	if f.into(name, &v, expected) && (v < least || v > most) {
		f.unexpected(name, expected)
		return normal
	}
	return v
}

// expectedRange says in which range something is.
func expectedRange(least, most float64, what string) string {
	switch {
	case most >= math.MaxInt32 && least <= math.MinInt32:
		return what
	case most >= math.MaxInt32:
		return fmt.Sprintf("%s, %v or more", what, least)
	}
	return fmt.Sprintf("%s from %v to %v", what, least, most)
}

// elements reads a list, none of whose elements is null.
func elements[T any](raw json.RawMessage) ([]T, bool) {
	var given []*T
	if json.Unmarshal(raw, &given) != nil || given == nil {
		return nil, false
	}
	all := make([]T, len(given))
	for i, x := range given {
		if x == nil {
			return nil, false
		}
		all[i] = *x
	}
	return all, true
}

// list is a field that is a list, nil where there is none.
func list[T any](f *fields, name, expected string) []T {
	if !f.has(name) {
		return nil
	}
	all, ok := elements[T](f.raw(name))
	if !ok {
		f.unexpected(name, expected)
	}
	return all
}

// ids are tokens, each of those that there are.
func (f *fields) ids(name string, tokens int) []int32 {
	v := list[int32](f, name, "a list of token ids")
	for _, id := range v {
		if id < 0 || int(id) >= tokens {
			f.fault(name, "found %d, expected a token id below %d", id, tokens)
			return nil
		}
	}
	return v
}

// object is a field that has fields. Where it is not there, it has none.
func (f *fields) object(name string) *fields {
	o := &fields{within: f.within + name + "."}
	f.into(name, &o.values, "an object")
	f.objects = append(f.objects, o)
	return o
}

// take makes an error of an object in f the error of f.
func (f *fields) take(o *fields) {
	if f.err == nil {
		f.err = o.err
	}
}

// choice is one of some words, empty where there is none.
func (f *fields) choice(name string, words ...string) string {
	v := f.text(name)
	if v == "" && !f.has(name) {
		return ""
	}
	for _, w := range words {
		if v == w {
			return v
		}
	}
	f.fault(name, "%s", suggest.Expected(v, words))
	return ""
}
