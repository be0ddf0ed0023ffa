package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/internal/pyjson"
)

// fromJSON parses a value; objects keep the order of their keys.
func fromJSON(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	v, err := nextValue(dec)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("more behind the first JSON value")
	}
	return v, nil
}

func nextValue(dec *json.Decoder) (any, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Number:
		if !strings.ContainsAny(token.String(), ".eE") {
			if i, err := token.Int64(); err == nil {
				return i, nil
			}
			return nil, fmt.Errorf("integer %s is too large", token)
		}
		f, err := token.Float64()
		return f, err
	case json.Delim:
		if token == '[' {
			list := []any{}
			for dec.More() {
				v, err := nextValue(dec)
				if err != nil {
					return nil, err
				}
				list = append(list, v)
			}
			_, err := dec.Token()
			return list, err
		}
		d := newDict()
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return nil, err
			}
			v, err := nextValue(dec)
			if err != nil {
				return nil, err
			}
			d.setString(key.(string), v)
		}
		_, err := dec.Token()
		return d, err
	}
	return token, nil // nil, bool, string
}

// fromGo converts any value that encodes to JSON.
func fromGo(v any) (any, error) {
	switch v := v.(type) {
	case nil, bool, string, int64, float64, *dict:
		return v, nil
	case int:
		return int64(v), nil
	case Message:
		return v.value()
	}
	data, err := marshal(v)
	if err != nil {
		return nil, err
	}
	return fromJSON(data)
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}

// jsonStyle holds the options of Python's json.dumps.
type jsonStyle struct {
	*meter
	ascii           bool
	indent          *string
	item, separator string // ", " and ": "
	sortKeys        bool
}

func (st *jsonStyle) append(b []byte, v any, depth int) ([]byte, error) {
	if err := st.enter(); err != nil {
		return nil, err
	}
	defer st.leave()
	switch v := v.(type) {
	case nil:
		return append(b, "null"...), nil
	case bool:
		return strconv.AppendBool(b, v), nil
	case int64:
		return strconv.AppendInt(b, v, 10), nil
	case float64:
		switch {
		case math.IsNaN(v):
			return append(b, "NaN"...), nil
		case math.IsInf(v, 1):
			return append(b, "Infinity"...), nil
		case math.IsInf(v, -1):
			return append(b, "-Infinity"...), nil
		}
		return append(b, floatText(v)...), nil
	case string:
		return st.quoted(b, v)
	case []any:
		return st.appendList(b, v, depth)
	case tuple:
		return st.appendList(b, v, depth)
	case *dict:
		return st.appendDict(b, v, depth)
	}
	return nil, typeError("a %s cannot be written as JSON", typeName(v))
}

func (st *jsonStyle) quoted(b []byte, s string) ([]byte, error) {
	if err := st.read(s, s); err != nil {
		return nil, err
	}
	before := len(b)
	b = pyjson.AppendQuoted(b, s, st.ascii)
	return b, st.spend(int64(len(b)-before-len(s)), 1) // bytes added by escapes
}

func (st *jsonStyle) newline(b []byte, depth int) []byte {
	if st.indent == nil || st.spend(int64(depth), int64(len(*st.indent))+1) != nil {
		return b
	}
	b = append(b, '\n')
	return append(b, strings.Repeat(*st.indent, depth)...)
}

func (st *jsonStyle) appendList(b []byte, list []any, depth int) ([]byte, error) {
	if len(list) == 0 {
		return append(b, "[]"...), nil
	}
	b = append(b, '[')
	var err error
	for i, v := range list {
		if i > 0 {
			b = append(b, st.item...)
			if err := st.read(st.item); err != nil {
				return nil, err
			}
		}
		b = st.newline(b, depth+1)
		if b, err = st.append(b, v, depth+1); err != nil {
			return nil, err
		}
	}
	return append(st.newline(b, depth), ']'), nil
}

func (st *jsonStyle) appendDict(b []byte, d *dict, depth int) ([]byte, error) {
	if len(d.keys) == 0 {
		return append(b, "{}"...), nil
	}
	if err := st.spend(int64(len(d.keys)), itemBytes); err != nil {
		return nil, err
	}
	order := make([]int, len(d.keys))
	for i := range order {
		order[i] = i
	}
	if st.sortKeys {
		var failed error
		slices.SortStableFunc(order, func(i, j int) int {
			c, err := st.compare(d.keys[i], d.keys[j])
			if err != nil {
				failed = err
			}
			return c
		})
		if failed != nil {
			return nil, failed
		}
	}
	b = append(b, '{')
	for n, i := range order {
		if n > 0 {
			b = append(b, st.item...)
			if err := st.read(st.item); err != nil {
				return nil, err
			}
		}
		b = st.newline(b, depth+1)
		switch key := d.keys[i].(type) {
		case string:
			var err error
			if b, err = st.quoted(b, key); err != nil {
				return nil, err
			}
		case nil, bool, int64, float64:
			b = append(b, '"')
			b, _ = st.append(b, key, 0)
			b = append(b, '"')
		default:
			return nil, typeError("a %s cannot be the key of a JSON object", typeName(key))
		}
		b = append(b, st.separator...)
		err := st.read(st.separator)
		if err != nil {
			return nil, err
		}
		if b, err = st.append(b, d.values[i], depth+1); err != nil {
			return nil, err
		}
	}
	return append(st.newline(b, depth), '}'), nil
}
