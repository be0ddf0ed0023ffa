package model

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// Fields are the keys of a JSON object. The first error is kept and returned by Err; values
// read after it are meaningless.
type Fields struct {
	values map[string]json.RawMessage
	err    error
}

// ParseFields reads a JSON object. As Python does, it accepts Infinity and NaN as values; they are
// not numbers for the methods that read keys. Errors: ErrConfig.
func ParseFields(raw []byte) (*Fields, error) {
	f := &Fields{}
	if err := json.Unmarshal(raw, &f.values); err != nil && json.Unmarshal(quoteNonFinite(raw), &f.values) != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if f.values == nil {
		return nil, fmt.Errorf("%w: found null, expected an object", ErrConfig)
	}
	return f, nil
}

// nonFinite matches strings, and the numbers that Python writes and JSON does not have.
var nonFinite = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|-?Infinity|NaN`)

// quoteNonFinite turns such numbers into strings.
func quoteNonFinite(raw []byte) []byte {
	return nonFinite.ReplaceAllFunc(raw, func(found []byte) []byte {
		if found[0] == '"' {
			return found
		}
		return []byte(`"` + string(found) + `"`)
	})
}

// Err returns the first error.
func (f *Fields) Err() error { return f.err }

// Has reports whether the key is present and not null.
func (f *Fields) Has(key string) bool {
	v, ok := f.values[key]
	return ok && string(v) != "null"
}

// Null reports whether the key is present and null, for keys whose null differs from a missing
// key.
func (f *Fields) Null(key string) bool { return string(f.values[key]) == "null" }

// given reports whether the key is present, even if it is null, for keys whose null differs
// from the default.
func (f *Fields) given(key string) bool { _, ok := f.values[key]; return ok }

// Fail records an error about a key, unless an earlier error was recorded. Errors: ErrConfig.
func (f *Fields) Fail(key string, found, expected any) {
	if f.err == nil {
		f.err = fmt.Errorf("%w: %s: found %v, expected %v", ErrConfig, key, found, expected)
	}
}

// Only rejects keys other than the given ones, since nothing would read them. Keys that begin
// with an underscore are ignored. Errors: ErrConfig.
func (f *Fields) Only(keys ...string) {
	for key := range ordered(f.values) {
		if !strings.HasPrefix(key, "_") && !slices.Contains(keys, key) && f.err == nil {
			f.err = fmt.Errorf("%w: %s: unknown key%s", ErrConfig, key, suggest.DidYouMean(key, keys))
		}
	}
}

// Unsupported records an error about a valid but unsupported value, as Fail does. Errors:
// ErrUnsupported.
func (f *Fields) Unsupported(key string, found any, supported []string) {
	if f.err == nil {
		f.err = fmt.Errorf("%w: %s %q; supported: %s", ErrUnsupported, key, fmt.Sprint(found), strings.Join(supported, ", "))
	}
}

// ordered yields the entries of a map by key, so that reading it in a loop reports the same one of
// several errors in every run.
func ordered[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if !yield(key, m[key]) {
				return
			}
		}
	}
}

func read[T any](f *Fields, key, expected string, def T) T {
	if !f.Has(key) {
		return def
	}
	var v T
	if json.Unmarshal(f.values[key], &v) != nil {
		f.Fail(key, string(f.values[key]), expected)
		return def
	}
	return v
}

// Int reads an integer, or returns def if the key is missing; so do the methods below.
func (f *Fields) Int(key string, def int) int { return read(f, key, "an integer", def) }

// Float reads a number.
func (f *Fields) Float(key string, def float64) float64 {
	return read(f, key, "a number", def)
}

// Bool reads true or false.
func (f *Fields) Bool(key string, def bool) bool { return read(f, key, "true or false", def) }

// String reads a string.
func (f *Fields) String(key, def string) string { return read(f, key, "a string", def) }

// Strings reads a list of strings, or returns nil if the key is missing.
func (f *Fields) Strings(key string) []string {
	return read(f, key, "a list of strings", []string(nil))
}

// Ints reads a list of integers, or returns def if the key is missing.
func (f *Fields) Ints(key string, def ...int) []int {
	return read(f, key, "a list of integers", def)
}

// Floats reads a list of numbers, or returns def if the key is missing.
func (f *Fields) Floats(key string, def ...float64) []float64 {
	return read(f, key, "a list of numbers", def)
}

// Bools reads a list of booleans, or returns def if the key is missing.
func (f *Fields) Bools(key string, def ...bool) []bool {
	return read(f, key, "a list of true and false", def)
}

// Object reads a nested object, or returns an empty one if the key is missing.
func (f *Fields) Object(key string) *Fields {
	return &Fields{values: read(f, key, "an object", map[string]json.RawMessage(nil))}
}

// enter replaces f by the keys of a nested object, for a model that is a part of another.
// quantization_config is inherited from the outer object.
func (f *Fields) enter(key string) {
	inner := f.Object(key)
	const stored = "quantization_config"
	if v, ok := f.values[stored]; ok && !inner.Has(stored) && inner.values != nil {
		inner.values[stored] = v
	}
	f.values = inner.values
}

// set replaces the object at key by o.
func (f *Fields) set(key string, o *Fields) {
	f.values[key], _ = json.Marshal(o.values) // never fails: these values were parsed from JSON
}

// Need reads a required integer.
func (f *Fields) Need(key string) int {
	if !f.Has(key) {
		f.Fail(key, "nothing", "an integer")
		return 0
	}
	return f.Int(key, 0)
}

// IDs reads one token id or a list of them.
func (f *Fields) IDs(key string) []int32 {
	if !f.Has(key) {
		return nil
	}
	var one int32
	if json.Unmarshal(f.values[key], &one) == nil {
		return []int32{one}
	}
	return read(f, key, "a token id or a list of them", []int32(nil))
}
