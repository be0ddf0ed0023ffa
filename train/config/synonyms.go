package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// synonym is the name of a key in other trainers. Files of some tasks may use it instead of the key.
type synonym struct {
	key string
	// words maps their values to ours; nil if they are equal.
	words map[string]string
	// only are the values of a name without a key: what is done in any case.
	only []string
	// free marks a name whose other values have no effect.
	free bool
	// help is the advice for a name without an equivalent.
	help string
}

// outer is the section of other trainers that is not one here.
const outer = "data_config"

// translate renames the keys of a mapping if its task has synonyms.
func (d decoder) translate(root *yaml.Node) (*yaml.Node, error) {
	root = follow(root)
	task := string(d.config.Task)
	each := func(n *yaml.Node, f func(key, v *yaml.Node) error) error {
		var all Errors
		for i, more := 0, true; i+1 < len(n.Content) && more; i += 2 {
			more = all.add(f(n.Content[i], n.Content[i+1]))
		}
		return all.err()
	}
	if root.Kind != yaml.MappingNode {
		return root, nil
	}
	_ = each(root, func(key, v *yaml.Node) error {
		if key.Value == "task" {
			task = follow(v).Value
		}
		return nil
	})
	synonyms := Task(task).definition().synonyms
	if synonyms == nil {
		return root, nil
	}
	t := &translation{decoder: d, synonyms: synonyms, root: &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: root.Line}, from: map[string]string{}}
	err := each(root, func(key, v *yaml.Node) error {
		if _, known := synonyms[key.Value]; known {
			return nil
		}
		if key.Value == outer && follow(v).Kind == yaml.MappingNode {
			return nil
		}
		t.root.Content = append(t.root.Content, key, v)
		return nil
	})
	if err == nil {
		err = each(root, func(key, v *yaml.Node) error {
			if key.Value == outer && follow(v).Kind == yaml.MappingNode {
				return each(follow(v), func(key, v *yaml.Node) error { return t.name(outer+"."+key.Value, key, v) })
			}
			if _, known := synonyms[key.Value]; known {
				return t.name(key.Value, key, v)
			}
			return nil
		})
	}
	t.alpha()
	return t.root, err
}

// translation is a mapping whose keys are given their names here.
type translation struct {
	decoder
	synonyms map[string]synonym
	root     *yaml.Node
	from     map[string]string // key → what gave it its value
	rank     *yaml.Node
}

// name renames the key called name.
func (t *translation) name(name string, key, v *yaml.Node) error {
	s, known := t.synonyms[name]
	fail := func(kind error, format string, args ...any) error {
		return &Error{t.place(key), name, fmt.Sprintf(format, args...), kind}
	}
	if !known && IsIdle(key.Value) {
		t.config.ignore(t.place(key), name, v)
		return nil
	}
	if !known {
		return fail(ErrUnknownKey, "%s", unknown("", key.Value))
	}
	v = follow(v)
	word := v.Value
	if isNull(v) {
		word = "none"
	}
	switch {
	case s.key == "" && len(s.only) == 0:
		return fail(ErrUnknownKey, "%s", s.help)
	case s.key == "":
		if v.Kind != yaml.ScalarNode || !slices.Contains(s.only, word) {
			return fail(ErrValue, "%v, expected %s: %s", found(v), suggest.Or(s.only), s.help)
		}
		return nil
	case s.words != nil:
		to, ok := s.words[word]
		if !ok && s.free {
			t.config.ignore(t.place(key), name, v)
			return nil
		}
		if v.Kind != yaml.ScalarNode || !ok && !isNull(v) {
			return fail(ErrValue, "%v, expected %s", found(v), suggest.Or(slices.Sorted(maps.Keys(s.words))))
		}
		if ok {
			v = &yaml.Node{Kind: yaml.ScalarNode, Value: to, Line: v.Line}
		}
	}
	switch name {
	case "rank", "network_dim":
		t.rank = v
	case "adam_beta1":
		return t.beta(0, v)
	case "adam_beta2":
		return t.beta(1, v)
	}
	if other, ok := t.put(s.key, v); !ok {
		return fail(ErrConflict, "found %s, and %s for %s: expected one of the two", shorten(v.Value), shorten(other.Value), cmp.Or(t.from[s.key], s.key))
	}
	t.from[s.key] = name
	return nil
}

// at returns the value at a dotted path, or nil if there is none; with make it then adds a new mapping.
func (t *translation) at(path string, make bool) *yaml.Node {
	n := t.root
	for name := range strings.SplitSeq(path, ".") {
		if make && isNull(n) {
			*n = yaml.Node{Kind: yaml.MappingNode, Line: n.Line}
		}
		i := 0
		for i+1 < len(n.Content) && n.Content[i].Value != name {
			i += 2
		}
		if i+1 >= len(n.Content) {
			if !make {
				return nil
			}
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name, Line: n.Line}, &yaml.Node{Kind: yaml.MappingNode, Line: n.Line})
		}
		n = follow(n.Content[i+1])
	}
	return n
}

// put sets a key. If the key has a value already, put returns that, and whether it equals v.
func (t *translation) put(path string, v *yaml.Node) (other *yaml.Node, ok bool) {
	if is := t.at(path, false); is != nil {
		return is, is.Kind == yaml.ScalarNode && v.Kind == yaml.ScalarNode && is.Value == v.Value
	}
	*t.at(path, true) = *v
	return nil, true
}

// beta sets element i of betas.
func (t *translation) beta(i int, v *yaml.Node) error {
	betas := t.at("betas", false)
	if betas == nil {
		betas = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: v.Line}
		for _, b := range Default().Betas {
			betas.Content = append(betas.Content, encode(b))
		}
		t.put("betas", betas)
		betas = t.at("betas", false)
	}
	if betas.Kind == yaml.SequenceNode && len(betas.Content) == 2 {
		betas.Content[i] = v
	}
	return nil
}

// alpha sets lora_alpha to the rank if it is not given, since the other trainers have no such key.
func (t *translation) alpha() {
	if t.rank != nil && t.at("adapter.lora_alpha", false) == nil {
		t.put("adapter.lora_alpha", t.rank)
	}
}
