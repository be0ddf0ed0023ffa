package config

import (
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Numbers is a list of numbers; YAML may give a single one.
type Numbers []float64

func (*Numbers) expects() string { return "a number or a list of them" }

func (s *Numbers) decodeYAML(n *yaml.Node) error {
	list, err := many(n, decodeNumber[float64])
	*s = list
	return err
}

func (s Numbers) numbers() []float64 { return s }

// Columns maps expected names of columns to the names in the files, in the order of the configuration.
type Columns []ColumnName

// ColumnName is one entry of [Columns].
type ColumnName struct{ Name, InFile string }

func (*Columns) expects() string { return "a mapping of names to names of columns" }

func (s *Columns) decodeYAML(n *yaml.Node) error {
	*s = nil
	return eachPair(n, func(key, v *yaml.Node) error { return s.setEntry(key.Value, v) })
}

func (s *Columns) setEntry(name string, n *yaml.Node) error {
	text, err := decodeString(n)
	if err != nil {
		return err
	}
	for i := range *s {
		if (*s)[i].Name == name {
			(*s)[i].InFile = text
			return nil
		}
	}
	*s = append(*s, ColumnName{name, text})
	return nil
}

// MarshalYAML keeps the order.
func (s Columns) MarshalYAML() (any, error) {
	node := &yaml.Node{Kind: yaml.MappingNode}
	for _, c := range s {
		node.Content = append(node.Content, encode(c.Name), encode(c.InFile))
	}
	return node, nil
}

// mapped returns the columns as a map, nil if there are none.
func (s Columns) mapped() map[string]string {
	if len(s) == 0 {
		return nil
	}
	m := map[string]string{}
	for _, c := range s {
		m[c.Name] = c.InFile
	}
	return m
}

// Devices selects devices of a backend, as backend.ParseDevices reads them: all, one index or a
// list of indices. Empty is the backend's first.
type Devices string

func (*Devices) expects() string { return "all, or indices such as [0, 2]" }

func (d *Devices) decodeYAML(n *yaml.Node) error {
	list, err := many(n, func(n *yaml.Node) (string, error) {
		if n = follow(n); n.Kind != yaml.ScalarNode {
			return "", found(n)
		}
		return n.Value, nil
	})
	*d = Devices(strings.Join(list, ","))
	return err
}

// Duration is a length of time. YAML gives seconds, or a number with a unit such as 10m or 1h30m.
type Duration time.Duration

func (*Duration) expects() string { return "a time such as 10m, in seconds" }

func (d *Duration) decodeYAML(n *yaml.Node) error {
	n = follow(n)
	if n.Kind != yaml.ScalarNode || d.UnmarshalText([]byte(n.Value)) != nil {
		return found(n)
	}
	return nil
}

// UnmarshalText accepts a number of seconds and what time.ParseDuration accepts.
func (d *Duration) UnmarshalText(raw []byte) error {
	text := string(raw)
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		text += "s"
	}
	x, err := time.ParseDuration(text)
	*d = Duration(x)
	return err
}

// MarshalText returns the form that UnmarshalText accepts.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d Duration) numbers() []float64 { return []float64{time.Duration(d).Seconds()} }
