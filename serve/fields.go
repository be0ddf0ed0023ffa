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

// fields reads the fields of a JSON object by name. A missing or null field has its default value.
// err is the first invalid field; check it after reading all fields.
type fields struct {
	values  map[string]json.RawMessage
	asked   map[string]bool // names of fields that were read
	within  string          // name of the enclosing object and a dot; empty for the body itself
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

// brief returns a value, shortened for an error message.
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

// fault records an error about a field, unless one is recorded already.
func (f *fields) fault(name, format string, args ...any) {
	if f.err == nil {
		name = f.within + name
		f.err = invalid(name, "%s: %s", name, fmt.Sprintf(format, args...))
	}
}

// unexpected records that a field has an unexpected value.
func (f *fields) unexpected(name, expected string) {
	f.fault(name, "found %s, expected %s", brief(f.values[name]), expected)
}

// failed returns the first error, or nil.
func (f *fields) failed() error {
	if f.err != nil {
		return f.err
	}
	return nil
}

// raw returns the JSON of a field, or nil if it is absent.
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

// into decodes a field into v and reports whether the field is present and valid.
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

// integer returns an integer field, which must be from least to most.
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
	if err != nil { // 16.0 is a whole number too
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

// number returns a number field, which must be from least to most.
func (f *fields) number(name string, normal, least, most float64) float64 {
	v, expected := normal, expectedRange(least, most, "a number")
	if f.into(name, &v, expected) && (v < least || v > most) {
		f.unexpected(name, expected)
		return normal
	}
	return v
}

// expectedRange describes a range for an error message.
func expectedRange(least, most float64, what string) string {
	switch {
	case most >= math.MaxInt32 && least <= math.MinInt32:
		return what
	case most >= math.MaxInt32:
		return fmt.Sprintf("%s, %v or more", what, least)
	}
	return fmt.Sprintf("%s from %v to %v", what, least, most)
}

// elements decodes a list without null elements.
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

// list returns a list field, or nil if it is absent.
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

// ids returns a list of token IDs, each of which must be less than tokens.
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

// object returns the fields of an object field. An absent object has no fields.
func (f *fields) object(name string) *fields {
	o := &fields{within: f.within + name + "."}
	f.into(name, &o.values, "an object")
	f.objects = append(f.objects, o)
	return o
}

// take copies the error of an object within f to f.
func (f *fields) take(o *fields) {
	if f.err == nil {
		f.err = o.err
	}
}

// choice returns a field that must be one of words, or "" if it is absent.
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
