package constrain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// value is a JSON value that keeps the order of object members.
type value struct {
	kind     types  // exactly one; numbers are isNumber
	text     string // decoded string, or number or literal as written
	elements []*value
	members  []member
}

type member struct {
	name  string
	value *value
}

// member returns the value of a member, or nil.
func (v *value) member(name string) *value {
	for _, m := range v.members {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// Limits of a schema document.
const (
	maxBytes   = 1 << 18
	maxNesting = 200
)

// parseDocument parses a JSON text.
func parseDocument(raw []byte) (*value, error) {
	if len(raw) > maxBytes {
		return nil, fmt.Errorf("constrain: %w: the schema has %d bytes, at most %d are read", ErrTooLarge, len(raw), maxBytes)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	v, err := readValue(d, 0)
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return v, nil
		}
		err = fmt.Errorf("%w: something follows the schema", ErrSchema)
	}
	if errors.Is(err, ErrSchema) || errors.Is(err, ErrTooLarge) {
		return nil, fmt.Errorf("constrain: %w", err)
	}
	return nil, fmt.Errorf("constrain: %w: not JSON: %w", ErrSchema, err)
}

func readValue(d *json.Decoder, depth int) (*value, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("%w: more than %d values in one another", ErrTooLarge, maxNesting)
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case nil:
		return &value{kind: isNull, text: "null"}, nil
	case bool:
		return &value{kind: isBoolean, text: fmt.Sprint(t)}, nil
	case json.Number:
		return &value{kind: isNumber, text: t.String()}, nil
	case string:
		return &value{kind: isString, text: t}, nil
	case json.Delim:
		if t == '[' {
			return readArray(d, depth)
		}
		return readObject(d, depth)
	}
	return nil, fmt.Errorf("%w: unexpected %v", ErrSchema, token)
}

func readArray(d *json.Decoder, depth int) (*value, error) {
	v := &value{kind: isArray}
	for d.More() {
		e, err := readValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		v.elements = append(v.elements, e)
	}
	_, err := d.Token()
	return v, err
}

func readObject(d *json.Decoder, depth int) (*value, error) {
	v := &value{kind: isObject}
	known := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, ok := key.(string)
		if !ok {
			return nil, fmt.Errorf("%w: a key is %v", ErrSchema, key)
		}
		if known[name] {
			return nil, fmt.Errorf("%w: the key %q stands twice in one object", ErrSchema, name)
		}
		known[name] = true
		e, err := readValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		v.members = append(v.members, member{name, e})
	}
	_, err := d.Token()
	return v, err
}

// spelled returns the canonical spelling of a value, without white space, and the positions after its commas and
// colons.
func (v *value) spelled() (text string, spaces []int) {
	var b strings.Builder
	v.spell(&b, &spaces)
	return b.String(), spaces
}

func (v *value) spell(b *strings.Builder, spaces *[]int) {
	switch v.kind {
	case isString:
		spellString(b, v.text)
	case isArray:
		b.WriteByte('[')
		for i, e := range v.elements {
			if i > 0 {
				b.WriteByte(',')
				*spaces = append(*spaces, b.Len())
			}
			e.spell(b, spaces)
		}
		b.WriteByte(']')
	case isObject:
		b.WriteByte('{')
		for i, m := range v.members {
			if i > 0 {
				b.WriteByte(',')
				*spaces = append(*spaces, b.Len())
			}
			spellString(b, m.name)
			b.WriteByte(':')
			*spaces = append(*spaces, b.Len())
			m.value.spell(b, spaces)
		}
		b.WriteByte('}')
	default:
		b.WriteString(v.text)
	}
}

// spellString writes a JSON string with only the required escapes.
func spellString(b *strings.Builder, s string) {
	const hex = "0123456789abcdef"
	b.WriteByte('"')
	for _, r := range s {
		short := strings.IndexRune("\"\\\b\f\n\r\t", r)
		switch {
		case short >= 0:
			b.WriteByte('\\')
			b.WriteByte(`"\bfnrt`[short])
		case r < ' ':
			b.WriteString(`\u00`)
			b.WriteByte(hex[r>>4])
			b.WriteByte(hex[r&15])
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}
