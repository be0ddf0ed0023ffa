package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// Key is one key of the YAML file, made from the tags of its field.
type Key struct {
	Path     string   // dotted, such as adapter.r
	Type     string   // expected value, in words
	Default  string   // as YAML; empty if there is none
	Words    []string // valid words, if the key is a choice
	Range    string   // interval of the valid numbers
	Required bool
	Filled   bool // optional, but not empty if given
	Section  bool // a mapping of keys
	Doc      string

	also  []string // names in other trainers, and paths in earlier versions
	task  string   // that it belongs to, see the tags of Config
	index []int    // the field in Config
}

// Keys lists all keys in the order of the reference; a section comes before
// its keys.
func Keys() []Key { return slices.Clone(table()) }

var table = sync.OnceValue(func() []Key {
	return appendKeys(nil, reflect.TypeFor[Config](), "", "", nil)
})

var byPath = sync.OnceValue(func() map[string]Key {
	m := map[string]Key{}
	for _, k := range table() {
		m[k.Path] = k
	}
	return m
})

func keyed(path string) Key { return byPath()[path] }

func appendKeys(keys []Key, t reflect.Type, path, task string, index []int) []Key {
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue
		}
		at := append(slices.Clone(index), i)
		key := Key{
			Path:     join(path, f.Tag.Get("yaml")),
			Default:  f.Tag.Get("default"),
			Range:    f.Tag.Get("range"),
			Required: f.Tag.Get("need") == "yes",
			Filled:   f.Tag.Get("need") == "text",
			Section:  isSection(f.Type),
			Doc:      f.Tag.Get("doc"),
			task:     cmp.Or(f.Tag.Get("task"), task),
			index:    at,
		}
		if words := f.Tag.Get("one"); words != "" {
			key.Words = strings.Split(words, "|")
		}
		if also := f.Tag.Get("also"); also != "" {
			key.also = strings.Split(also, ",")
		}
		if f.Type == reflect.TypeFor[Task]() {
			key.Words = Tasks()
			for _, d := range definitions {
				key.Doc += fmt.Sprintf(" %s: %s", d.name, d.doc)
			}
		}
		if key.Section {
			key.Doc = cmp.Or(key.Doc, Task(key.task).definition().section)
			key.Type = "mapping"
			keys = appendKeys(append(keys, key), f.Type, key.Path, key.task, at)
			continue
		}
		key.Type = typeName(f.Type)
		keys = append(keys, key)
	}
	return keys
}

// of reports whether the key belongs to a task.
func (k Key) of(t Task) bool {
	return k.task == "" || k.task == string(t) || k.task == texts && t.definition().texts
}

// typeName returns the description of the values of a type.
func typeName(t reflect.Type) string {
	if v, ok := reflect.New(t).Interface().(value); ok {
		return v.expects()
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Uint64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Array:
		return fmt.Sprintf("a list of %d numbers", t.Len())
	}
	return "text"
}

// expects describes the valid values in words.
func (k Key) expects() string {
	switch {
	case len(k.Words) > 0:
		return suggest.Or(k.Words)
	case k.Range != "":
		return k.Type + " " + parseInterval(k.Range).String()
	}
	return k.Type
}

func isSection(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	_, isValue := reflect.New(t).Interface().(value)
	return !isValue
}

// fieldOf returns the field of the struct v for the key.
func fieldOf(v reflect.Value, key string) (reflect.Value, bool) {
	t := v.Type()
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() && f.Tag.Get("yaml") == key {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

// setDefaults writes the defaults of the tags into c. A default that does not
// decode is a mistake in the table, which TestDefaultsDecode finds.
func setDefaults(c *Config) {
	for _, k := range table() {
		if k.Default == "" {
			continue
		}
		var doc yaml.Node
		if yaml.Unmarshal([]byte(k.Default), &doc) == nil {
			_ = decodeInto(doc.Content[0], reflect.ValueOf(c).Elem().FieldByIndex(k.index))
		}
	}
}

// unknown returns advice on an unknown key of the section: the name of the equivalent key if another trainer or an
// earlier version uses it, its section if it belongs to another one, that the PEFT key is unsupported, or the nearest name.
func unknown(section, name string) string {
	for _, k := range table() {
		if slices.Contains(k.also, strings.ReplaceAll(name, "-", "_")) || slices.Contains(k.also, join(section, name)) {
			return fmt.Sprintf("unknown key, here it is called %q", k.Path)
		}
	}
	if section == "adapter" && slices.Contains(unsupported, name) {
		return "this key of PEFT's configuration is not supported here"
	}
	var siblings, leaves []string
	homes := map[string][]string{}
	for _, k := range table() {
		parent, leaf := split(k.Path)
		if parent == section {
			siblings = append(siblings, leaf)
		}
		leaves = append(leaves, leaf)
		homes[leaf] = append(homes[leaf], k.Path)
	}
	// A name that is right in another section beats a slip of one in this.
	if hint := suggest.DidYouMean(name, siblings); hint != "" && homes[name] == nil {
		return "unknown key" + hint
	}
	if near := suggest.Nearest(name, leaves, 1); len(near) == 1 {
		return fmt.Sprintf(`unknown key, did you mean "%s"?`, strings.Join(homes[near[0]], `" or "`))
	}
	where := "top level"
	if section != "" {
		where = section
	}
	return fmt.Sprintf("unknown key, %s has %s", where, strings.Join(siblings, ", "))
}

// split splits a dotted path into section and name.
func split(path string) (section, name string) {
	i := strings.LastIndexByte(path, '.')
	return path[:max(i, 0)], path[i+1:]
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
