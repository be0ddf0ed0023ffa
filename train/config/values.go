package config

import (
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/safetensors"
)

// Strings is a list of text; YAML may give a single one.
type Strings []string

// Ints is a list of integers; YAML may give a single one.
type Ints []int

// Names selects modules: by a list of names, or by one expression, which is a
// regular expression or a word such as all-linear. At most one is set.
type Names struct {
	List []string
	Expr string
}

// Empty reports whether n selects nothing.
func (n Names) Empty() bool { return len(n.List) == 0 && n.Expr == "" }

// Patterns assigns numbers to modules by name or regular expression. The order is the file's: the
// first pattern that matches counts.
type Patterns[T int | float64] []Pattern[T]

// Pattern is one entry of [Patterns]: a module name or regular expression, and its value.
type Pattern[T int | float64] struct {
	Name  string
	Value T
}

// Init is the initialization of an adapter's A and B, as PEFT writes it: true, false, gaussian, pissa, pissa_niter_N
// or olora.
type Init string

// TokenIndices are the token ids whose embeddings are trained: of the input
// embedding (IDs), or of embeddings by their names, in the file's order.
type TokenIndices struct {
	IDs      []int
	ByModule []ModuleTokens
}

// ModuleTokens are the token ids trained in one embedding.
type ModuleTokens struct {
	Module string
	IDs    []int
}

// NaNPolicy is the reaction to a loss or gradient that is not finite.
type NaNPolicy string

// The policies.
const (
	StopOnNaN NaNPolicy = "stop"
	SkipNaN   NaNPolicy = "skip" // the step changes nothing
)

// UnmarshalText reads the name of a policy. It fails with ErrValue.
func (p *NaNPolicy) UnmarshalText(text []byte) error {
	switch policy := NaNPolicy(text); policy {
	case StopOnNaN, SkipNaN:
		*p = policy
		return nil
	}
	return fmt.Errorf("%w: %s", ErrValue, suggest.Expected(string(text), []string{string(StopOnNaN), string(SkipNaN)}))
}

// Bytes is an amount of memory. YAML gives bytes, or a number with a unit
// from B to TiB (powers of 1024) or from kB to TB (powers of 1000).
type Bytes int64

// A value decodes itself from YAML; expects describes what it takes.
type value interface {
	decodeYAML(n *yaml.Node) error
	expects() string
}

// numbers are the numbers in a value that the range tag of its key binds.
type numbers interface{ numbers() []float64 }

func (*Strings) expects() string     { return "text or a list of text" }
func (*Ints) expects() string        { return "a whole number or a list of them" }
func (*Names) expects() string       { return "a list of names or one expression" }
func (*Patterns[T]) expects() string { return "a mapping of names to " + plural[T]() }
func (*Init) expects() string        { return "true, false, gaussian, pissa, pissa_niter_N or olora" }
func (*TokenIndices) expects() string {
	return "a list of token ids, or a mapping of names to such lists"
}
func (*Bytes) expects() string { return "bytes, such as 8GiB" }

func plural[T int | float64]() string {
	if _, whole := any(*new(T)).(int); whole {
		return "whole numbers"
	}
	return "numbers"
}

func (s *Strings) decodeYAML(n *yaml.Node) error {
	list, err := many(n, decodeString)
	*s = list
	return err
}

func (s *Ints) decodeYAML(n *yaml.Node) error {
	list, err := many(n, decodeInt[int])
	*s = list
	return err
}

func (s Ints) numbers() []float64 {
	all := make([]float64, len(s))
	for i, v := range s {
		all[i] = float64(v)
	}
	return all
}

func (s *Names) decodeYAML(n *yaml.Node) (err error) {
	*s = Names{}
	if follow(n).Kind == yaml.SequenceNode {
		s.List, err = many(n, decodeString)
		return err
	}
	s.Expr, err = decodeString(n)
	return err
}

// MarshalYAML writes the form that was read.
func (s Names) MarshalYAML() (any, error) {
	switch {
	case s.Expr != "":
		return s.Expr, nil
	case len(s.List) > 0:
		return s.List, nil
	}
	return nil, nil
}

func (s *Patterns[T]) decodeYAML(n *yaml.Node) error {
	*s = nil
	return eachPair(n, func(key, v *yaml.Node) error {
		number, err := decodeNumber[T](v)
		if err == nil {
			s.put(key.Value, number)
		}
		return err
	})
}

// put replaces the pattern's number, or adds it at the end.
func (s *Patterns[T]) put(name string, v T) {
	for i := range *s {
		if (*s)[i].Name == name {
			(*s)[i].Value = v
			return
		}
	}
	*s = append(*s, Pattern[T]{name, v})
}

func (s *Patterns[T]) setEntry(name string, n *yaml.Node) error {
	number, err := decodeNumber[T](n)
	if err == nil {
		s.put(name, number)
	}
	return err
}

func (s Patterns[T]) numbers() []float64 {
	all := make([]float64, len(s))
	for i, p := range s {
		all[i] = float64(p.Value)
	}
	return all
}

// MarshalYAML keeps the order.
func (s Patterns[T]) MarshalYAML() (any, error) {
	node := &yaml.Node{Kind: yaml.MappingNode}
	for _, p := range s {
		node.Content = append(node.Content, encode(p.Name), encode(p.Value))
	}
	return node, nil
}

var pissaIterations = regexp.MustCompile(`^pissa_niter_[1-9][0-9]{0,3}$`)

func (s *Init) decodeYAML(n *yaml.Node) error {
	n = follow(n)
	v := strings.ToLower(n.Value)
	switch {
	case n.Kind != yaml.ScalarNode:
	case v == "true" || v == "false" || v == "gaussian" || v == "pissa" || v == "olora" || pissaIterations.MatchString(v):
		*s = Init(v)
		return nil
	}
	return found(n)
}

// MarshalYAML encodes true and false as booleans and other values as strings.
func (s Init) MarshalYAML() (any, error) {
	switch s {
	case "true", "false":
		return s == "true", nil
	}
	return string(s), nil
}

func (s *TokenIndices) decodeYAML(n *yaml.Node) (err error) {
	*s = TokenIndices{}
	if follow(n).Kind != yaml.MappingNode {
		s.IDs, err = many(n, decodeID)
		return err
	}
	return eachPair(n, func(key, v *yaml.Node) error {
		ids, err := many(v, decodeID)
		s.ByModule = append(s.ByModule, ModuleTokens{key.Value, ids})
		return err
	})
}

// MarshalYAML writes the form that was read.
func (s TokenIndices) MarshalYAML() (any, error) {
	if len(s.ByModule) == 0 {
		if len(s.IDs) == 0 {
			return nil, nil
		}
		return s.IDs, nil
	}
	node := &yaml.Node{Kind: yaml.MappingNode}
	for _, m := range s.ByModule {
		node.Content = append(node.Content, encode(m.Module), encode(m.IDs))
	}
	return node, nil
}

// Accepted in addition to [safetensors.ParseSize]: abbreviated units, which are powers of 1024, and 0.
var (
	letters = regexp.MustCompile(`(?i)[0-9. ][kmgt]$`)
	zero    = regexp.MustCompile(`(?i)^0+(\.0*)?\s*([kmgt]i?)?b?$`)
)

func (s *Bytes) decodeYAML(n *yaml.Node) error {
	n = follow(n)
	if n.Kind != yaml.ScalarNode || s.UnmarshalText([]byte(n.Value)) != nil {
		return found(n)
	}
	return nil
}

// UnmarshalText accepts the input of [safetensors.ParseSize], the letters k, m, g and t for powers of 1024, and 0.
func (s *Bytes) UnmarshalText(raw []byte) error {
	text := strings.TrimSpace(string(raw))
	if zero.MatchString(text) {
		*s = 0
		return nil
	}
	if letters.MatchString(text) {
		text += "iB"
	}
	size, err := safetensors.ParseSize(text)
	if err == nil {
		*s = Bytes(size)
	}
	return err
}

// encode returns v as a YAML node. It is called only with values that have one.
func encode(v any) *yaml.Node {
	var n yaml.Node
	if err := n.Encode(v); err != nil {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}
	}
	return &n
}
