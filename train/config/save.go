package config

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Settings returns a YAML file with the keys that were given or set, in the order of the reference. Parse reads it
// back. It leaves out resume, which is for one run.
func (c *Config) Settings() ([]byte, error) {
	var b bytes.Buffer
	section := ""
	for _, k := range table() {
		if k.Section || !c.Given(k.Path) || k.Path == resumeKey {
			continue
		}
		parent, name := split(k.Path)
		if parent != section && parent != "" {
			fmt.Fprintf(&b, "%s:\n", parent)
		}
		section = parent
		text, err := c.entry(k, name)
		if err != nil {
			return nil, err
		}
		b.WriteString(indent(text, parent, ""))
	}
	return b.Bytes(), nil
}

// GivenValues returns the values of the keys that were given or set, as text, by dotted keys.
func (c *Config) GivenValues() (map[string]string, error) {
	raw, err := c.Settings()
	if err != nil {
		return nil, err
	}
	var given map[string]any
	if err := yaml.Unmarshal(raw, &given); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	values := map[string]string{}
	flatten(values, "", given)
	return values, nil
}

// flatten adds the values of a mapping to all, with dotted names.
func flatten(all map[string]string, prefix string, values map[string]any) {
	for k, v := range values {
		if inner, ok := v.(map[string]any); ok {
			flatten(all, prefix+k+".", inner)
			continue
		}
		all[prefix+k] = fmt.Sprint(v)
	}
}

// resumeKey is the key that is not part of saved settings.
const resumeKey = "resume"

// Commented returns a YAML file with all keys of the task and what they mean. Keys that were not given are comments,
// with their defaults. Required keys without a value get an example.
func (c *Config) Commented() ([]byte, error) {
	var b bytes.Buffer
	for _, k := range table() {
		if !k.of(c.Task) || k.Path == resumeKey || k.Path == jobsKey {
			continue
		}
		parent, name := split(k.Path)
		given, value := c.Given(k.Path), reflect.ValueOf(c).Elem().FieldByIndex(k.index)
		if !k.Section || !strings.Contains(k.Path, ".") {
			b.WriteByte('\n')
		}
		for _, line := range wrap(firstSentence(k.Doc), commentWidth) {
			b.WriteString(indent(line+"\n", parent, "# "))
		}
		switch {
		case k.Section:
			fmt.Fprintf(&b, "%s%s:\n", commented(!c.givenWithin(k.Path)), k.Path)
			continue
		case k.Required && value.IsZero():
			b.WriteString(indent(fmt.Sprintf("%s: %s\n", name, cmp.Or(examples[k.Path], "path")), parent, ""))
			continue
		}
		text, err := c.entry(k, name)
		if err != nil {
			return nil, err
		}
		b.WriteString(indent(text, parent, commented(!given)))
	}
	return bytes.TrimPrefix(b.Bytes(), []byte("\n")), nil
}

// commented returns the mark of lines that are comments: without a space, unlike descriptions.
func commented(yes bool) string {
	if yes {
		return "#"
	}
	return ""
}

// jobsKey is the key of several runs, which a file for one run does not need.
const jobsKey = "jobs"

// commentWidth is the length of comment lines.
const commentWidth = 96

// examples are values of required keys in a file that waits to be completed.
var examples = map[string]string{"model": "owner/name", "data.train": "train.jsonl"}

// givenWithin reports whether a section has a key that is given, or that needs an example.
func (c *Config) givenWithin(section string) bool {
	for _, k := range table() {
		if parent, _ := split(k.Path); parent == section && k.of(c.Task) && (c.Given(k.Path) || k.Required) {
			return true
		}
	}
	return false
}

// entry returns the lines of a key and its value.
func (c *Config) entry(k Key, name string) (string, error) {
	value := encode(reflect.ValueOf(c).Elem().FieldByIndex(k.index).Interface())
	if value.Kind == yaml.SequenceNode {
		value.Style = yaml.FlowStyle
	}
	raw, err := yaml.Marshal(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: name}, value}})
	if err != nil {
		return "", err
	}
	return string(raw), nil
}

// indent puts mark before each line, and spaces before that if the lines are in a section.
func indent(text, section, mark string) string {
	if section != "" {
		mark = "  " + mark
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(mark + line)
	}
	return b.String()
}

// firstSentence returns the beginning of a text up to the first full stop that a space follows.
func firstSentence(text string) string {
	if at := strings.Index(text, ". "); at >= 0 {
		return text[:at+1]
	}
	return text
}

// wrap divides a text into lines of at most width characters, unless a word is longer.
func wrap(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
