package config

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// decode reads one YAML document over the values that c holds.
func (c *Config) decode(name string, raw []byte) error {
	if !utf8.Valid(raw) {
		return &Error{Place: name, Problem: "not valid UTF-8", Kind: ErrSyntax}
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	var doc, more yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return syntaxError(name, err)
	}
	switch err := dec.Decode(&more); {
	case err == nil:
		return &Error{Place: fmt.Sprintf("%s:%d", name, more.Line), Problem: "a second YAML document, expected one", Kind: ErrSyntax}
	case !errors.Is(err, io.EOF):
		return syntaxError(name, err)
	}
	d := decoder{config: c, place: func(n *yaml.Node) string { return fmt.Sprintf("%s:%d", name, n.Line) }}
	root, err := d.translate(doc.Content[0])
	var all Errors
	all.add(err)
	all.add(d.section(root, reflect.ValueOf(c).Elem(), ""))
	return all.err()
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntaxError moves the line number of a YAML error after the file name.
func syntaxError(name string, err error) error {
	text := err.Error()
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		text = text[len(m[0]):]
		if m[1] != "" {
			name += ":" + m[1]
		}
	}
	return &Error{Place: name, Problem: "not valid YAML: " + text, Kind: ErrSyntax}
}

// A decoder writes YAML nodes into the fields of a Config.
type decoder struct {
	config *Config
	place  func(n *yaml.Node) string
}

// section decodes a mapping into the struct v, whose keys begin with path. Its error has the problems of all keys.
func (d decoder) section(n *yaml.Node, v reflect.Value, path string) error {
	n = follow(n)
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return &Error{d.place(n), path, fmt.Sprintf("%v, expected a mapping of keys to values", found(n)), ErrValue}
	}
	seen := map[string]bool{}
	var all Errors
	for i, more := 0, true; i+1 < len(n.Content) && more; i += 2 {
		key, item := n.Content[i], n.Content[i+1]
		full := join(path, key.Value)
		field, ok := fieldOf(v, key.Value)
		switch {
		case seen[full]:
			more = all.add(&Error{d.place(key), full, "given twice", ErrSyntax})
		case ok:
			more = all.add(d.field(item, field, full))
		case path != "adapter" && IsIdle(key.Value):
			d.config.ignore(d.place(key), full, item)
		default:
			more = all.add(&Error{d.place(key), full, unknown(path, key.Value), ErrUnknownKey})
		}
		seen[full] = true
	}
	return all.err()
}

// field decodes a value, or a section, into the field of the key.
func (d decoder) field(n *yaml.Node, v reflect.Value, key string) error {
	n = follow(n)
	if isSection(v.Type()) {
		return d.section(n, v, key)
	}
	d.config.places[key] = d.place(n)
	if isNull(n) {
		v.Set(reflect.ValueOf(Default()).Elem().FieldByIndex(keyed(key).index))
		return nil
	}
	if err := decodeInto(n, v); err != nil {
		return d.refuse(n, key, err)
	}
	if jobs, ok := v.Addr().Interface().(*Jobs); ok {
		jobs.place = d.place
	}
	return nil
}

// refuse returns the error for a value that the key does not accept; found describes the value.
func (d decoder) refuse(n *yaml.Node, key string, found error) error {
	k := keyed(key)
	return &Error{d.place(n), key, fmt.Sprintf("%v, expected %s%s", found, k.expects(), suggest.DidYouMean(n.Value, k.Words)), ErrValue}
}

// decodeInto decodes one value. Its error says only what was found.
func decodeInto(n *yaml.Node, v reflect.Value) (err error) {
	switch p := v.Addr().Interface().(type) {
	case value:
		return p.decodeYAML(n)
	case encoding.TextUnmarshaler:
		var word string
		if word, err = decodeString(n); err == nil && p.UnmarshalText([]byte(word)) != nil {
			err = found(n)
		}
	case *string:
		*p, err = decodeString(n)
	case *bool:
		*p, err = decodeBool(n)
	case *int:
		*p, err = decodeInt[int](n)
	case *uint64:
		*p, err = decodeInt[uint64](n)
	case *float64:
		*p, err = decodeNumber[float64](n)
	case *[2]float64:
		var list []float64
		list, err = many(n, decodeNumber[float64])
		if err == nil && len(list) != len(p) {
			return found(n)
		}
		copy(p[:], list)
	default:
		err = fmt.Errorf("a key of type %s, which YAML cannot give", v.Type())
	}
	return err
}

func decodeString(n *yaml.Node) (string, error) {
	n = follow(n)
	// Paths and names may look like numbers or dates.
	switch n.ShortTag() {
	case "!!str", "!!int", "!!float", "!!timestamp":
		if n.Kind == yaml.ScalarNode {
			return n.Value, nil
		}
	}
	return "", found(n)
}

func decodeBool(n *yaml.Node) (b bool, err error) {
	n = follow(n)
	if n.ShortTag() != "!!bool" || n.Decode(&b) != nil {
		return false, found(n)
	}
	return b, nil
}

func decodeInt[T int | uint64](n *yaml.Node) (v T, err error) {
	n = follow(n)
	switch n.ShortTag() {
	case "!!int":
		if n.Decode(&v) == nil {
			return v, nil
		}
	case "!!float": // 1e3 is as whole as 1000
		_, signed := any(v).(int)
		f, err := strconv.ParseFloat(n.Value, 64)
		if err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 && (f >= 0 || signed) {
			return T(f), nil
		}
	}
	return 0, found(n)
}

func decodeNumber[T int | float64](n *yaml.Node) (v T, err error) {
	if _, whole := any(v).(int); whole {
		i, err := decodeInt[int](n)
		return T(i), err
	}
	n = follow(n)
	var f float64
	if tag := n.ShortTag(); tag != "!!int" && tag != "!!float" || n.Decode(&f) != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, found(n)
	}
	return T(f), nil
}

// decodeID decodes a token ID.
func decodeID(n *yaml.Node) (int, error) {
	id, err := decodeInt[int](n)
	if err != nil || id < 0 || id > math.MaxInt32 {
		return 0, found(n)
	}
	return id, nil
}

// many decodes a list, or a single item as a list of one.
func many[T any](n *yaml.Node, item func(*yaml.Node) (T, error)) ([]T, error) {
	n = follow(n)
	items := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		items = n.Content
	}
	var list []T
	for _, it := range items {
		v, err := item(it)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// eachPair calls f with the keys and values of a mapping.
func eachPair(n *yaml.Node, f func(key, v *yaml.Node) error) error {
	n = follow(n)
	if n.Kind != yaml.MappingNode {
		return found(n)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		for j := 0; j < i; j += 2 {
			if n.Content[j].Value == key.Value {
				return fmt.Errorf("found %q twice", key.Value)
			}
		}
		if err := f(key, n.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// follow resolves an alias to its node.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// found returns an error that describes an unexpected value.
func found(n *yaml.Node) error {
	switch {
	case n.Kind == yaml.MappingNode:
		return errors.New("found a mapping")
	case n.Kind == yaml.SequenceNode:
		return fmt.Errorf("found a list of %d", len(n.Content))
	case n.ShortTag() == "!!str":
		return fmt.Errorf("found %q", shorten(n.Value))
	case isNull(n):
		return errors.New("found nothing")
	}
	return fmt.Errorf("found %s", shorten(n.Value))
}

func shorten(s string) string {
	const limit = 40
	if r := []rune(s); len(r) > limit {
		return string(r[:limit]) + "…"
	}
	return s
}
