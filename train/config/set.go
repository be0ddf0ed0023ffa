package config

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// override is the place of values that --set gave.
const override = "--set"

// Set applies one override, key=value. The key is dotted (adapter.r=16). The value is YAML (data.train=[a.jsonl,
// b.jsonl]) or, for keys that take text, the literal text. An entry of a mapping is set by appending its name:
// adapter.rank_pattern.q_proj=4.
func (c *Config) Set(assignment string) error {
	path, text, ok := strings.Cut(assignment, "=")
	path = strings.TrimSpace(path)
	if !ok || path == "" {
		return &Error{override, "", fmt.Sprintf("found %q, expected key=value", shorten(assignment)), ErrSyntax}
	}
	if c.places == nil {
		c.places = map[string]string{}
	}
	d := decoder{config: c, place: func(*yaml.Node) string { return override }}
	v, section := reflect.ValueOf(c).Elem(), ""
	for rest := path; ; {
		name, more, deeper := strings.Cut(rest, ".")
		field, ok := fieldOf(v, name)
		if !ok {
			return &Error{override, path, unknown(section, name), ErrUnknownKey}
		}
		section, v, rest = join(section, name), field, more
		if !deeper {
			break
		}
		if !isSection(v.Type()) {
			return c.setEntry(v, section, rest, text)
		}
	}
	switch p := v.Addr().Interface().(type) {
	case *string:
		*p, c.places[section] = text, override
		return nil
	case encoding.TextUnmarshaler:
		c.places[section] = override
		if n := (&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}); p.UnmarshalText([]byte(text)) != nil {
			return d.refuse(n, section, found(n))
		}
		return nil
	}
	n, err := parseValue(section, text)
	if err != nil {
		return err
	}
	return d.field(n, v, section)
}

// setEntry sets one entry of a value that is a mapping.
func (c *Config) setEntry(v reflect.Value, key, name, text string) error {
	m, ok := v.Addr().Interface().(interface {
		setEntry(name string, n *yaml.Node) error
	})
	if !ok {
		return &Error{override, key + "." + name, fmt.Sprintf("unknown key, %s takes %s", key, keyed(key).expects()), ErrUnknownKey}
	}
	n, err := parseValue(key, text)
	if err != nil {
		return err
	}
	if err := m.setEntry(name, n); err != nil {
		return &Error{override, key + "." + name, fmt.Sprintf("%v, expected %s", err, keyed(key).expects()), ErrValue}
	}
	c.places[key] = override
	return nil
}

// parseValue returns the YAML node of an override's value; empty text is null.
func parseValue(key, text string) (*yaml.Node, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return nil, &Error{override, key, fmt.Sprintf("%q is not valid YAML", shorten(text)), ErrSyntax}
	}
	if len(doc.Content) == 0 {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}, nil
	}
	return doc.Content[0], nil
}
