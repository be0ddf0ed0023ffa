package config

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// YAML returns the whole configuration, including defaults, in the order of the reference. Parse reads it back. It
// leaves out keys of other tasks whose names mean another key in files of the task (sample_prompts).
func (c *Config) YAML() ([]byte, error) {
	var all yaml.Node
	if err := all.Encode(c); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	synonyms, kept := c.Task.definition().synonyms, []*yaml.Node{}
	for i := 0; i+1 < len(all.Content); i += 2 {
		if k := all.Content[i].Value; synonyms[k].key == "" || keyed(k).of(c.Task) {
			kept = append(kept, all.Content[i:i+2]...)
		}
	}
	all.Content = kept
	return yaml.Marshal(&all)
}

// Reference returns the reference page of the configuration file in Markdown, generated from the table of keys.
func Reference() string {
	var b strings.Builder
	b.WriteString(`# Configuration of a training run

` + "`lorafuse train CONFIG.yaml`" + ` reads these keys. ` + "`lorafuse init`" + ` writes a
file with all of them, and ` + "`lorafuse train --model M --data D`" + ` chooses them. Only ` + required() + ` must be given:

` + "```yaml" + `
model: meta-llama/Llama-3.2-1B
data:
  train: train.jsonl
adapter:
  r: 16
  lora_alpha: 32
  target_modules: all-linear
` + "```" + `

All unknown keys are reported, with their names here or the nearest ones. Keys of other trainers without an effect
here, such as the number of workers and names of experiment trackers, are accepted with a note. ` + "`" + `--set key=value` + "`" + `
overrides the file, with dots between the names: ` + "`" + `--set adapter.r=16 --set data.train=[a.jsonl,b.jsonl]` + "`" + `. Relative
paths start at the working folder. An empty default means none; ` + "`" + `null` + "`" + ` selects the default.

## Top level
`)
	keys := table()
	writeRows(&b, keys, "")
	for _, section := range keys {
		if section.Section {
			fmt.Fprintf(&b, "\n## %s\n%s\n", section.Path, section.Doc)
			writeRows(&b, keys, section.Path)
		}
	}
	return b.String()
}

// writeRows writes the table of the section's own keys.
func writeRows(b *strings.Builder, keys []Key, section string) {
	b.WriteString("\n| key | value | default | meaning |\n|---|---|---|---|\n")
	for _, k := range keys {
		parent, name := split(k.Path)
		if parent != section {
			continue
		}
		takes, byDefault := k.expects(), ""
		switch {
		case k.Section:
			takes = fmt.Sprintf("[its own keys](#%s)", k.Path)
		case k.Required:
			byDefault = "required"
		case k.Default != "":
			byDefault = "`" + k.Default + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", name, cell(takes), byDefault, cell(k.Doc))
	}
}

// required lists the keys that have to be given.
func required() string {
	var names []string
	for _, k := range table() {
		if k.Required && k.of(Default().Task) {
			names = append(names, "`"+k.Path+"`")
		}
	}
	return strings.Join(names, " and ")
}

func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
