// Package migrate converts the configuration files of other trainers to the YAML of lorafuse train. [Convert] detects
// the trainer by the keys of the file. Values keep their exact meaning: defaults of the trainer that differ from ours are
// written out, and what has no equivalent is listed with a reason.
package migrate

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"go.yaml.in/yaml/v3"

	"github.com/lorafuse/lorafuse/train/config"
)

// ErrSource is wrapped if a file is not a configuration of a known trainer.
var ErrSource = errors.New("not a configuration of a known trainer")

// Result is a converted configuration.
type Result struct {
	Source  string // name of the trainer
	YAML    []byte // the configuration, with Dropped and Todo as comments
	Dropped []Note // keys that have no equivalent
	Todo    []Note // our keys that must be set or checked by hand
	Unused  []string
}

// Note is a remark on a key.
type Note struct {
	Key string `json:"key"`
	Why string `json:"why"`
}

// source is a trainer whose files are read.
type source struct {
	name string
	// marks are keys that no other trainer has. A file belongs to the trainer with the most of them.
	marks []string
	// defaults are our keys where a file without the key means something else than ours does.
	defaults map[string]any
	// keys are the trainer's keys, as dotted paths without list indices.
	keys map[string]rule
	// flatten converts the file to dotted keys; nil means that it has them already.
	flatten func(file map[string]any) map[string]any
	// finish sets our keys that depend on several of the trainer's keys.
	finish func(c *conversion)
}

var sources []*source

// register adds a trainer.
func register(s *source) { sources = append(sources, s) }

// Names returns the names of the trainers whose files are read.
func Names() (names []string) {
	for _, s := range sources {
		names = append(names, s.name)
	}
	slices.Sort(names)
	return names
}

// Detect returns the name of the trainer that a file belongs to, or "" if it is none of them. The file must have two
// keys that other trainers lack, and none of our sections.
func Detect(name string, raw []byte) string {
	file, err := parse(name, raw)
	if err != nil {
		return ""
	}
	for key := range dotted(file) {
		if section, _, nested := strings.Cut(key, "."); key == "data.train" || nested && (section == "adapter" || section == "diffusion") {
			return ""
		}
	}
	if s, _ := detect(file, 2); s != nil {
		return s.name
	}
	return ""
}

// Meaning returns our key for a trainer's key, or the reason why there is none. idle reports that the key has no
// effect here. Without the name of a trainer it knows the keys that mean the same to all that have them.
func Meaning(trainer, key string) (ours, why string, idle bool) {
	for _, s := range sources {
		if trainer != "" && s.name != trainer {
			continue
		}
		r := s.keys[key]
		if trainer != "" {
			return r.to, r.why, r.unused || isUnused(key)
		}
		if r.to != "" && ours != "" && r.to != ours {
			return "", "", false
		}
		ours = cmp.Or(ours, r.to)
	}
	return ours, "", false
}

// Convert converts a file in YAML, JSON or TOML, whose name decides on TOML. Errors: ErrSource.
func Convert(name string, raw []byte) (*Result, error) {
	file, err := parse(name, raw)
	if err != nil {
		return nil, err
	}
	s, values := detect(file, 1)
	if s == nil {
		return nil, fmt.Errorf("%s: %w: found %s, expected the keys of %s", name, ErrSource, few(slices.Sorted(maps.Keys(file))), strings.Join(Names(), ", "))
	}
	c := &conversion{source: s, in: values, out: map[string]any{}, done: map[string]bool{}}
	maps.Copy(c.out, s.defaults)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		c.convert(key)
	}
	if s.finish != nil {
		s.finish(c)
	}
	return c.result(filepath.Base(name))
}

// The bounds of a file: bytes, values including those of aliases, and levels of nesting.
const (
	largest = 1 << 20
	widest  = 10_000
	deepest = 32
)

// parse decodes a file whose top level is a mapping.
func parse(name string, raw []byte) (map[string]any, error) {
	if len(raw) > largest {
		return nil, fmt.Errorf("%s: found %d bytes, expected a configuration of at most %d", name, len(raw), largest)
	}
	var file map[string]any
	if strings.EqualFold(filepath.Ext(name), ".toml") {
		if err := toml.Unmarshal(raw, &file); err != nil {
			return nil, fmt.Errorf("%s: not valid TOML: %w", name, err)
		}
		if values := widest; !isSmall(file, &values, deepest) {
			return nil, tooLarge(name)
		}
		return file, nil
	}
	var top yaml.Node
	if err := yaml.Unmarshal(raw, &top); err != nil {
		return nil, fmt.Errorf("%s: not valid YAML: %w", name, err)
	}
	if top.Kind != yaml.DocumentNode || top.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s: %w: expected a mapping of keys to values", name, ErrSource)
	}
	if nodes := widest; !isBounded(&top, &nodes, deepest) {
		return nil, tooLarge(name)
	}
	if err := top.Decode(&file); err != nil {
		return nil, fmt.Errorf("%s: not valid YAML: %w", name, err)
	}
	return file, nil
}

func tooLarge(name string) error {
	return fmt.Errorf("%s: %w: expected at most %d values in %d levels", name, ErrSource, widest, deepest)
}

// isBounded reports whether a YAML node has at most the given nodes, each alias counting as what it stands for, and
// levels. It visits no more.
func isBounded(n *yaml.Node, nodes *int, levels int) bool {
	if *nodes--; *nodes < 0 || levels < 0 {
		return false
	}
	if n.Kind == yaml.AliasNode {
		return isBounded(n.Alias, nodes, levels-1)
	}
	for _, inner := range n.Content {
		if !isBounded(inner, nodes, levels-1) {
			return false
		}
	}
	return true
}

// isSmall reports whether a value has at most the given values and levels.
func isSmall(v any, values *int, levels int) bool {
	if *values--; *values < 0 || levels < 0 {
		return false
	}
	switch v := v.(type) {
	case map[string]any:
		for _, inner := range v {
			if !isSmall(inner, values, levels-1) {
				return false
			}
		}
	case []any:
		for _, inner := range v {
			if !isSmall(inner, values, levels-1) {
				return false
			}
		}
	case []map[string]any:
		for _, inner := range v {
			if !isSmall(inner, values, levels-1) {
				return false
			}
		}
	}
	return true
}

// detect returns the trainer with the most marks in a file, if there are enough, and the values in the form of its keys.
func detect(file map[string]any, enough int) (best *source, values map[string]any) {
	most := enough - 1
	for _, s := range sources {
		flat := file
		if s.flatten != nil {
			flat = s.flatten(file)
		}
		flat = dotted(flat)
		n := 0
		for _, m := range s.marks {
			for key := range flat {
				if key == m || strings.HasPrefix(key, m+".") {
					n++
					break
				}
			}
		}
		if n > most {
			most, best, values = n, s, flat
		}
	}
	return best, values
}

// dotted returns the values of nested mappings under dotted keys.
func dotted(file map[string]any) map[string]any {
	flat := map[string]any{}
	var add func(prefix string, m map[string]any)
	add = func(prefix string, m map[string]any) {
		for key, v := range m {
			if inner, ok := v.(map[string]any); ok && len(inner) > 0 {
				add(prefix+key+".", inner)
				continue
			}
			flat[prefix+key] = v
		}
	}
	add("", file)
	return flat
}

// few joins the first names of a list.
func few(names []string) string {
	const most = 5
	if len(names) > most {
		names = append(slices.Clone(names[:most]), "…")
	}
	return strings.Join(names, ", ")
}

// result renders the configuration, and checks it as lorafuse train would.
func (c *conversion) result(name string) (*Result, error) {
	body, err := c.render()
	if err != nil {
		return nil, err
	}
	_, err = config.Parse("", body)
	if bad, ok := errors.AsType[*config.Error](err); ok && !slices.ContainsFunc(c.todo, func(n Note) bool { return strings.HasPrefix(n.Key, bad.Key) }) {
		c.todo = append(c.todo, Note{bad.Key, bad.Problem})
	}
	for _, notes := range [][]Note{c.dropped, c.todo} {
		slices.SortStableFunc(notes, func(a, b Note) int { return strings.Compare(a.Key+"\n"+a.Why, b.Key+"\n"+b.Why) })
	}
	r := &Result{Source: c.source.name, Dropped: c.dropped, Todo: c.todo, Unused: c.unused}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Converted from %s, a configuration of %s, by lorafuse config migrate.\n", clean(name), c.source.name)
	for _, part := range []struct {
		head  string
		notes []Note
	}{{"Still to do:", c.todo}, {"Dropped:", c.dropped}} {
		if len(part.notes) > 0 {
			fmt.Fprintf(&b, "#\n# %s\n", part.head)
		}
		for _, n := range part.notes {
			fmt.Fprintf(&b, "#   %s: %s\n", clean(n.Key), clean(n.Why))
		}
	}
	b.WriteString("\n")
	b.Write(body)
	r.YAML = b.Bytes()
	return r, nil
}

// clean removes line breaks, which would end a comment.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\u0085' || r == '\u2028' || r == '\u2029' || r == '\ufeff' || r == '\ufffd' {
			return ' '
		}
		return r
	}, text)
}

// render writes the keys in the order of the reference.
func (c *conversion) render() ([]byte, error) {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, k := range config.Keys() {
		v, ok := c.out[k.Path]
		if !ok || k.Section {
			continue
		}
		value := &yaml.Node{}
		if err := value.Encode(v); err != nil {
			return nil, err
		}
		at, path := root, k.Path
		for {
			section, rest, nested := strings.Cut(path, ".")
			if !nested {
				break
			}
			at, path = sectionOf(at, section), rest
		}
		if value.Kind != yaml.ScalarNode {
			value.Style = yaml.FlowStyle
		}
		at.Content = append(at.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: path}, value)
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if len(root.Content) == 0 {
		return nil, nil
	}
	if err := e.Encode(root); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}

// sectionOf returns a section of a mapping, which it adds if there is none.
func sectionOf(at *yaml.Node, name string) *yaml.Node {
	for i := 0; i < len(at.Content); i += 2 {
		if at.Content[i].Value == name {
			return at.Content[i+1]
		}
	}
	section := &yaml.Node{Kind: yaml.MappingNode}
	at.Content = append(at.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, section)
	return section
}
