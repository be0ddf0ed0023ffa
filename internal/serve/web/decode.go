package web

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// Decoder decodes JSON objects into structs. A missing or null field leaves its default in the
// struct. Tags of a field:
//
//	json      its name
//	in        the least and the most number, such as 0,1. A name stands for one of API.Limits, and
//	          nothing for no limit.
//	one       the words that a string may be, such as text|json_object
//	auto      the word "auto" is accepted, too, and stands for a missing field
//	expected  what the error message expects, in place of what follows from the type
type Decoder struct {
	limits map[string]int
	err    *Failure // the first error
	unread []unread
}

// unread are the fields of an object that are not in its struct.
type unread struct {
	within string
	values map[string]json.RawMessage // all fields
	names  []string
}

// FieldDecoder decodes a field of a type that needs more than tags.
type FieldDecoder interface {
	DecodeField(d *Decoder, name string, raw json.RawMessage)
}

// Decode reads the JSON object in the request body into the struct that v points to. It refuses
// fields that are not in the struct and would affect the answer, and logs unknown names.
func (c *Call) Decode(v any) error {
	raw, err := c.Body("application/json")
	if err != nil {
		return err
	}
	values, err := parseObject(raw)
	if err != nil {
		return err
	}
	d := &Decoder{limits: c.api.Limits}
	d.object(reflect.ValueOf(v).Elem(), values, "")
	if d.err == nil {
		d.err = c.checkUnread(d.unread)
	}
	return d.failed()
}

// DecodeObject decodes the fields of an object into the struct that v points to, and ignores others.
// within is the name of the object and a dot.
func DecodeObject(v any, values map[string]json.RawMessage, within string) error {
	var d Decoder
	d.object(reflect.ValueOf(v).Elem(), values, within)
	return d.failed()
}

// parseObject returns the fields of an object.
func parseObject(raw []byte) (values map[string]json.RawMessage, err error) {
	if !utf8.Valid(raw) {
		return nil, &Failure{Status: http.StatusBadRequest, Message: "the body is not UTF-8"}
	}
	err = json.Unmarshal(raw, &values)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax) && len(raw) == 0:
		return nil, &Failure{Status: http.StatusBadRequest, Message: "the body is empty, expected a JSON object"}
	case errors.As(err, &syntax):
		return nil, &Failure{Status: http.StatusBadRequest, Message: fmt.Sprintf("the body is no JSON: %v, at byte %d", err, syntax.Offset)}
	case err != nil || values == nil:
		return nil, &Failure{Status: http.StatusBadRequest, Message: fmt.Sprintf("found %s, expected a JSON object", Brief(raw))}
	}
	return values, nil
}

// Brief returns a value, shortened for an error message.
func Brief(raw []byte) string {
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

// Fault records an error about a field, unless one is recorded already.
func (d *Decoder) Fault(name, format string, args ...any) {
	if d.err == nil {
		d.err = Faulty(name, format, args...)
	}
}

// Unexpected records that a field has an unexpected value.
func (d *Decoder) Unexpected(name string, raw json.RawMessage, expected string) {
	d.Fault(name, "found %s, expected %s", Brief(raw), expected)
}

// failed returns the first error, or nil.
func (d *Decoder) failed() error {
	if d.err != nil {
		return d.err
	}
	return nil
}

// object decodes the fields of an object into a struct and records unread ones. within is the name
// of the object and a dot, or empty for the body.
func (d *Decoder) object(v reflect.Value, values map[string]json.RawMessage, within string) {
	u := unread{within: within, values: values, names: slices.Sorted(maps.Keys(values))}
	at := len(d.unread)
	d.unread = append(d.unread, u)
	d.fields(v, values, within, func(name string) {
		u.names = slices.DeleteFunc(u.names, func(s string) bool { return s == name })
	})
	d.unread[at] = u
}

// fields decodes the fields of an object, and calls read with the name of each field of the struct.
func (d *Decoder) fields(v reflect.Value, values map[string]json.RawMessage, within string, read func(name string)) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name := field.Tag.Get("json")
		if field.Anonymous {
			d.fields(v.Field(i), values, within, read)
			continue
		}
		read(name)
		raw := values[name]
		if raw == nil || string(raw) == "null" || field.Tag.Get("auto") != "" && string(raw) == `"auto"` {
			continue
		}
		d.value(v.Field(i), field.Tag, within+name, raw)
	}
}

// value decodes a field.
func (d *Decoder) value(v reflect.Value, tag reflect.StructTag, name string, raw json.RawMessage) {
	if x, ok := v.Addr().Interface().(FieldDecoder); ok {
		x.DecodeField(d, name, raw)
		return
	}
	expected := tag.Get("expected")
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(v.Elem(), tag, name, raw)
	case reflect.Struct:
		var values map[string]json.RawMessage
		if json.Unmarshal(raw, &values) != nil {
			d.Unexpected(name, raw, "an object")
		}
		d.object(v, values, name+".")
	case reflect.Int, reflect.Int64:
		d.integer(v, tag, name, raw)
	case reflect.Float64:
		least, most := d.limitsOf(tag, -math.MaxFloat32, math.MaxFloat32)
		if expected == "" {
			expected = expectedRange(least, most, "a number")
		}
		if err := json.Unmarshal(raw, v.Addr().Interface()); err != nil || v.Float() < least || v.Float() > most {
			d.Unexpected(name, raw, expected)
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes(raw)
		} else if !decodeList(v, raw) {
			d.Unexpected(name, raw, cmp.Or(expected, "a list"))
		}
	default:
		if expected == "" {
			expected = map[reflect.Kind]string{reflect.Bool: "true or false", reflect.String: "a string", reflect.Map: "an object"}[v.Kind()]
		}
		if json.Unmarshal(raw, v.Addr().Interface()) != nil {
			d.Unexpected(name, raw, expected)
		} else if words := tag.Get("one"); words != "" && !slices.Contains(strings.Split(words, "|"), v.String()) {
			d.Fault(name, "%s", suggest.Expected(v.String(), strings.Split(words, "|")))
		}
	}
}

// Limit returns the number of a name in API.Limits.
func (d *Decoder) Limit(name string) int { return d.limits[name] }

// limitsOf returns the least and the most number of the tag in.
func (d *Decoder) limitsOf(tag reflect.StructTag, least, most float64) (float64, float64) {
	from, to, _ := strings.Cut(tag.Get("in"), ",")
	limit := func(text string, none float64) float64 {
		if text == "" {
			return none
		}
		if n, ok := d.limits[text]; ok {
			return float64(n)
		}
		x, err := strconv.ParseFloat(text, 64)
		if err != nil {
			panic(err) // a mistake in a tag
		}
		return x
	}
	return limit(from, least), limit(to, most)
}

// integer decodes a whole number, which may be written as 16.0.
func (d *Decoder) integer(v reflect.Value, tag reflect.StructTag, name string, raw json.RawMessage) {
	least, most := d.limitsOf(tag, math.MinInt32, math.MaxInt32)
	expected := tag.Get("expected")
	if expected == "" {
		expected = expectedRange(least, most, "a whole number")
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		x, floatErr := strconv.ParseFloat(string(raw), 64)
		if floatErr != nil || x != math.Trunc(x) || math.Abs(x) > 1<<53 {
			d.Unexpected(name, raw, expected)
			return
		}
		n = int64(x)
	}
	if v.Kind() == reflect.Int64 { // all 64 bits, or those above the least
		most = math.Inf(1)
		if tag.Get("in") == "" {
			least = math.Inf(-1)
		}
	}
	if float64(n) < least || float64(n) > most {
		d.Unexpected(name, raw, expected)
		return
	}
	v.SetInt(n)
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

// decodeList decodes a list without null elements.
func decodeList(v reflect.Value, raw json.RawMessage) bool {
	given := reflect.New(reflect.SliceOf(reflect.PointerTo(v.Type().Elem())))
	if json.Unmarshal(raw, given.Interface()) != nil {
		return false
	}
	all := reflect.MakeSlice(v.Type(), 0, given.Elem().Len())
	for _, x := range given.Elem().Seq2() {
		if x.IsNil() {
			return false
		}
		all = reflect.Append(all, x.Elem())
	}
	v.Set(all)
	return true
}

// Elements decodes a list without null elements.
func Elements[T any](raw json.RawMessage) (all []T, ok bool) {
	ok = decodeList(reflect.ValueOf(&all).Elem(), raw) && string(raw) != "null"
	return all, ok
}
