package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Find gives the template in file, or that of the model in dir where file is empty;
// nil where the model has none, which is no mistake as long as nothing asks for
// one. tokens are the special tokens by their names, for a file.
func Find(dir, file string, tokens map[string]string) (*Template, error) {
	if file == "" {
		template, err := Load(dir)
		if errors.Is(err, ErrNoTemplate) || errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return template, err
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	template, err := New(string(raw), tokens)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return template, nil
}

// Load reads the chat template of a model's folder: chat_template.jinja, further templates
// in additional_chat_templates, or else "chat_template" of tokenizer_config.json, which can
// be one template or a list of named ones, or that of chat_template.json. The special tokens
// come from tokenizer_config.json, or special_tokens_map.json in older folders. A folder without a template gives [ErrNoTemplate].
func Load(dir string) (*Template, error) {
	sources, tokens := map[string]string{}, map[string]string{}
	config := filepath.Join(dir, "tokenizer_config.json")
	listsTokens := false
	data, err := os.ReadFile(config)
	if err == nil {
		listsTokens, err = readConfig(data, sources, tokens)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", config, err)
	}
	special := filepath.Join(dir, "special_tokens_map.json")
	if data, err := os.ReadFile(special); err == nil && !listsTokens {
		if _, err := readConfig(data, map[string]string{}, tokens); err != nil {
			return nil, fmt.Errorf("%s: %w", special, err)
		}
	}
	if len(sources) == 0 {
		file := filepath.Join(dir, "chat_template.json")
		if data, err := os.ReadFile(file); err == nil {
			if _, err := readConfig(data, sources, nil); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(escapeGlob(dir), "additional_chat_templates", "*.jinja"))
	if err != nil {
		return nil, err
	}
	main := filepath.Join(dir, "chat_template.jinja")
	if _, err := os.Stat(main); err == nil {
		files = append(files, main)
	}
	if len(files) > 0 {
		clear(sources)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name := "default"
		if file != main {
			name = strings.TrimSuffix(filepath.Base(file), ".jinja")
		}
		sources[name] = string(data)
	}
	if len(sources) == 0 {
		return nil, fmt.Errorf("%s: %w: neither chat_template.jinja nor chat_template in tokenizer_config.json", dir, ErrNoTemplate)
	}
	t, err := newTemplate(sources, tokens)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return t, nil
}

func escapeGlob(path string) string {
	if filepath.Separator == '\\' {
		return path // there is no escape
	}
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// readConfig takes the templates and the special tokens out of a configuration, and tells
// whether it lists the added tokens: such do without the older special_tokens_map.json.
func readConfig(data []byte, sources, tokens map[string]string) (listsTokens bool, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return false, err
	}
	_, listsTokens = fields["added_tokens_decoder"]
	for name, raw := range fields {
		if !strings.HasSuffix(name, "_token") || tokens == nil {
			continue
		}
		var token string
		var object struct{ Content string }
		if json.Unmarshal(raw, &token) == nil && token != "" {
			tokens[name] = token
		} else if json.Unmarshal(raw, &object) == nil && object.Content != "" {
			tokens[name] = object.Content
		}
	}
	raw, ok := fields["chat_template"]
	if !ok || string(raw) == "null" {
		return listsTokens, nil
	}
	var source string
	if json.Unmarshal(raw, &source) == nil {
		sources["default"] = source
		return listsTokens, nil
	}
	var named []struct{ Name, Template string }
	if json.Unmarshal(raw, &named) == nil {
		for _, n := range named {
			sources[n.Name] = n.Template
		}
		return listsTokens, nil
	}
	if err := json.Unmarshal(raw, &sources); err != nil {
		return false, fmt.Errorf("%w: chat_template is neither a string nor a list of named templates", ErrTemplate)
	}
	return listsTokens, nil
}
