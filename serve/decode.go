package serve

import (
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

// decoder decodes JSON objects into structs. A missing or null field leaves its default in the
// struct. Tags of a field:
//
//	json      its name
//	in        the least and the most number, such as 0,1. A name stands for one of limits, and
//	          nothing for no limit.
//	one       the words that a string may be, such as text|json_object
//	auto      the word "auto" is accepted, too, and stands for a missing field
//	expected  what the error message expects, in place of what follows from the type
type decoder struct {
	limits map[string]int
	err    *failure // the first error
	unread []unread
}

// unread are the fields of an object that are not in its struct.
type unread struct {
	within string
	values map[string]json.RawMessage // all fields
	names  []string
}

// fieldDecoder decodes a field of a type that needs more than tags.
type fieldDecoder interface {
	decodeField(d *decoder, name string, raw json.RawMessage)
}

// decode reads the JSON object in the request body into the struct that v points to. It refuses
// fields that are not in the struct and would affect the answer, and logs unknown names.
func (c *call) decode(v any) error {
	raw, err := c.body()
	if err != nil {
		return err
	}
	values, err := parseObject(raw)
	if err != nil {
		return err
	}
	o := &c.server.options
	d := &decoder{limits: map[string]int{"answers": o.MaxAnswers, "logprobs": o.MaxTopLogprobs, "vocab": o.Model.Config.VocabSize}}
	d.object(reflect.ValueOf(v).Elem(), values, "")
	if d.err == nil {
		d.err = c.checkUnread(d.unread)
	}
	return d.failed()
}

// parseObject returns the fields of an object.
func parseObject(raw []byte) (values map[string]json.RawMessage, err error) {
	if !utf8.Valid(raw) {
		return nil, &failure{status: http.StatusBadRequest, message: "the body is not UTF-8"}
	}
	err = json.Unmarshal(raw, &values)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax) && len(raw) == 0:
		return nil, &failure{status: http.StatusBadRequest, message: "the body is empty, expected a JSON object"}
	case errors.As(err, &syntax):
		return nil, &failure{status: http.StatusBadRequest, message: fmt.Sprintf("the body is no JSON: %v, at byte %d", err, syntax.Offset)}
	case err != nil || values == nil:
		return nil, &failure{status: http.StatusBadRequest, message: fmt.Sprintf("found %s, expected a JSON object", brief(raw))}
	}
	return values, nil
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

// faulty returns the failure of a request with an invalid field.
func faulty(name, format string, args ...any) *failure {
	return invalid(name, "%s: %s", name, fmt.Sprintf(format, args...))
}

// fault records an error about a field, unless one is recorded already.
func (d *decoder) fault(name, format string, args ...any) {
	if d.err == nil {
		d.err = faulty(name, format, args...)
	}
}

// unexpected records that a field has an unexpected value.
func (d *decoder) unexpected(name string, raw json.RawMessage, expected string) {
	d.fault(name, "found %s, expected %s", brief(raw), expected)
}

// failed returns the first error, or nil.
func (d *decoder) failed() error {
	if d.err != nil {
		return d.err
	}
	return nil
}

// object decodes the fields of an object into a struct and records unread ones. within is the name
// of the object and a dot, or empty for the body.
func (d *decoder) object(v reflect.Value, values map[string]json.RawMessage, within string) {
	u := unread{within: within, values: values, names: slices.Sorted(maps.Keys(values))}
	at := len(d.unread)
	d.unread = append(d.unread, u)
	d.fields(v, values, within, func(name string) {
		u.names = slices.DeleteFunc(u.names, func(s string) bool { return s == name })
	})
	d.unread[at] = u
}

// fields decodes the fields of an object, and calls read with the name of each field of the struct.
func (d *decoder) fields(v reflect.Value, values map[string]json.RawMessage, within string, read func(name string)) {
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
func (d *decoder) value(v reflect.Value, tag reflect.StructTag, name string, raw json.RawMessage) {
	if x, ok := v.Addr().Interface().(fieldDecoder); ok {
		x.decodeField(d, name, raw)
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
			d.unexpected(name, raw, "an object")
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
			d.unexpected(name, raw, expected)
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes(raw)
		} else if !decodeList(v, raw) {
			d.unexpected(name, raw, expected)
		}
	default:
		if expected == "" {
			expected = map[reflect.Kind]string{reflect.Bool: "true or false", reflect.String: "a string"}[v.Kind()]
		}
		if json.Unmarshal(raw, v.Addr().Interface()) != nil {
			d.unexpected(name, raw, expected)
		} else if words := tag.Get("one"); words != "" && !slices.Contains(strings.Split(words, "|"), v.String()) {
			d.fault(name, "%s", suggest.Expected(v.String(), strings.Split(words, "|")))
		}
	}
}

// limitsOf returns the least and the most number of the tag in.
func (d *decoder) limitsOf(tag reflect.StructTag, least, most float64) (float64, float64) {
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
func (d *decoder) integer(v reflect.Value, tag reflect.StructTag, name string, raw json.RawMessage) {
	least, most := d.limitsOf(tag, math.MinInt32, math.MaxInt32)
	expected := tag.Get("expected")
	if expected == "" {
		expected = expectedRange(least, most, "a whole number")
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		x, floatErr := strconv.ParseFloat(string(raw), 64)
		if floatErr != nil || x != math.Trunc(x) || math.Abs(x) > 1<<53 {
			d.unexpected(name, raw, expected)
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
		d.unexpected(name, raw, expected)
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

// elements decodes a list without null elements.
func elements[T any](raw json.RawMessage) (all []T, ok bool) {
	ok = decodeList(reflect.ValueOf(&all).Elem(), raw) && string(raw) != "null"
	return all, ok
}

// tokenIDs are token IDs of the model's vocabulary.
type tokenIDs []int32

// decodeField implements fieldDecoder.
func (t *tokenIDs) decodeField(d *decoder, name string, raw json.RawMessage) {
	all, ok := elements[int32](raw)
	if !ok {
		d.unexpected(name, raw, "a list of token ids")
		return
	}
	d.checkTokens(name, all)
	*t = all
}

// checkTokens records an error unless all IDs are of the vocabulary.
func (d *decoder) checkTokens(name string, ids []int32) {
	vocab := d.limits["vocab"]
	for _, id := range ids {
		if id < 0 || int(id) >= vocab {
			d.fault(name, "found %d, expected a token id below %d", id, vocab)
		}
	}
}
