package lora

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lorafuse/lorafuse/internal/pyjson"
)

// The values of a JSON document here: nil, bool, string, json.Number, array
// and object. Objects keep the order of the file: PEFT takes the first rank
// pattern that matches.
type (
	array  []any
	object []member
	member struct {
		key   string
		value any
	}
)

// get returns the value of a key.
func (o object) get(key string) (any, bool) {
	for _, m := range o {
		if m.key == key {
			return m.value, true
		}
	}
	return nil, false
}

// maxDepth is far above any adapter_config.json and far below the stack.
const maxDepth = 64

// parseJSON reads one JSON document.
func parseJSON(data []byte) (any, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	v, err := parseValue(dec, 0)
	if err != nil {
		return nil, whereInJSON(data, dec, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, whereInJSON(data, dec, errors.New("something follows the end of the document"))
	}
	return v, nil
}

func parseValue(dec *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested more than %d levels deep", maxDepth)
	}
	t, err := dec.Token()
	if err != nil {
		return nil, err
	}
	delim, ok := t.(json.Delim)
	if !ok {
		return t, nil
	}
	if delim == '[' {
		list := array{}
		for dec.More() {
			v, err := parseValue(dec, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := dec.Token()
		return list, err
	}
	obj := object{}
	seen := map[string]bool{}
	for dec.More() {
		k, err := dec.Token()
		if err != nil {
			return nil, err
		}
		key := k.(string) // the decoder accepts nothing else before a colon
		if seen[key] {
			return nil, fmt.Errorf("key %q appears twice", key)
		}
		seen[key] = true
		v, err := parseValue(dec, depth+1)
		if err != nil {
			return nil, err
		}
		obj = append(obj, member{key, v})
	}
	_, err = dec.Token()
	return obj, err
}

func whereInJSON(data []byte, dec *json.Decoder, err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	at := min(int(dec.InputOffset()), len(data))
	return fmt.Errorf("line %d: %w", 1+bytes.Count(data[:at], []byte("\n")), err)
}

// appendJSON writes v as Python's json.dumps(v, indent=2, sort_keys=True)
// does. An object of the type ordered keeps its order.
func appendJSON(b []byte, v any, indent int) []byte {
	newline := func(n int) {
		b = append(b, '\n')
		for range n {
			b = append(b, "  "...)
		}
	}
	members := func(o []member) {
		if len(o) == 0 {
			b = append(b, "{}"...)
			return
		}
		for i, m := range o {
			b = append(b, "{,"[min(i, 1)])
			newline(indent + 1)
			b = append(pyjson.AppendQuoted(b, m.key, true), ": "...)
			b = appendJSON(b, m.value, indent+1)
		}
		newline(indent)
		b = append(b, '}')
	}
	switch v := v.(type) {
	case nil:
		b = append(b, "null"...)
	case bool:
		b = strconv.AppendBool(b, v)
	case string:
		b = pyjson.AppendQuoted(b, v, true)
	case json.Number:
		b = append(b, pythonNumber(string(v))...)
	case ordered:
		members(v)
	case object:
		members(slices.SortedFunc(slices.Values([]member(v)), func(a, b member) int { return strings.Compare(a.key, b.key) }))
	case array:
		if len(v) == 0 {
			return append(b, "[]"...)
		}
		for i, e := range v {
			b = append(b, "[,"[min(i, 1)])
			newline(indent + 1)
			b = appendJSON(b, e, indent+1)
		}
		newline(indent)
		b = append(b, ']')
	}
	return b
}

// ordered is an object whose order has a meaning.
type ordered []member

// pythonNumber returns the text that Python would write after reading s. An integer
// stays an integer; a number with a fraction or an exponent becomes a float.
func pythonNumber(s string) string {
	if !strings.ContainsAny(s, ".eE") {
		if s == "-0" {
			return "0"
		}
		return s
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return s
	}
	return pythonFloat(f)
}

// pythonFloat returns repr(f): the shortest digits that round-trip, without an exponent
// from 1e-4 up to 1e16.
func pythonFloat(f float64) string {
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
