package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// Find returns the template in file, or the built-in template of that name. If file is empty, it
// returns the first template in one of the folders; pass the adapter's folder before its model's.
// It returns nil if there is none. tokens are the special tokens by name, for a file and for
// folders that define none.
func Find(file string, tokens map[string]string, dirs ...string) (*Template, error) {
	if source, ok := builtIn(file); ok {
		return New(source, tokens)
	}
	if file != "" {
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
	for _, dir := range dirs {
		template, err := Load(dir)
		if errors.Is(err, ErrNoTemplate) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		} else if err != nil {
			return nil, err
		}
		return template.WithDefaultTokens(tokens), nil
	}
	return nil, nil
}

// WithDefaultTokens returns a copy of t that renders with the given special tokens, by names such
// as "bos_token". If the folder of t defines special tokens, it returns t.
func (t *Template) WithDefaultTokens(tokens map[string]string) *Template {
	if len(t.tokens) > 0 {
		return t
	}
	own := *t
	own.tokens = tokens
	return &own
}

// Load reads the chat template of a folder; see [LoadFS].
func Load(dir string) (*Template, error) {
	t, err := LoadFS(os.DirFS(dir))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return t, nil
}

const (
	configFile    = "tokenizer_config.json"
	specialFile   = "special_tokens_map.json"
	templateJSON  = "chat_template.json"
	templateJinja = "chat_template.jinja"
)

// LoadFS reads the chat template of a model's folder. It reads chat_template.jinja and the named templates in
// additional_chat_templates, or else "chat_template" of tokenizer_config.json, which may be one template or a list of
// named ones, or else chat_template.json. The special tokens come from tokenizer_config.json, or from
// special_tokens_map.json in older folders. LoadFS fails with [ErrNoTemplate] if the folder has no template.
func LoadFS(folder fs.FS) (*Template, error) {
	sources, tokens := map[string]string{}, map[string]string{}
	listsTokens := false
	data, err := fs.ReadFile(folder, configFile)
	if err == nil {
		listsTokens, err = readConfig(data, sources, tokens)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", configFile, err)
	}
	if data, err := fs.ReadFile(folder, specialFile); err == nil && !listsTokens {
		if _, err := readConfig(data, map[string]string{}, tokens); err != nil {
			return nil, fmt.Errorf("%s: %w", specialFile, err)
		}
	}
	if len(sources) == 0 {
		if data, err := fs.ReadFile(folder, templateJSON); err == nil {
			if _, err := readConfig(data, sources, nil); err != nil {
				return nil, fmt.Errorf("%s: %w", templateJSON, err)
			}
		}
	}
	files, err := fs.Glob(folder, "additional_chat_templates/*.jinja")
	if err != nil {
		return nil, err
	}
	if _, err := fs.Stat(folder, templateJinja); err == nil {
		files = append(files, templateJinja)
	}
	if len(files) > 0 {
		clear(sources)
	}
	for _, file := range files {
		data, err := fs.ReadFile(folder, file)
		if err != nil {
			return nil, err
		}
		name := "default"
		if file != templateJinja {
			name = strings.TrimSuffix(path.Base(file), ".jinja")
		}
		sources[name] = string(data)
	}
	if len(sources) == 0 {
		return nil, fmt.Errorf("%w: neither %s nor chat_template in %s", ErrNoTemplate, templateJinja, configFile)
	}
	return newTemplate(sources, tokens)
}

// templateFiles returns the names of the files that a folder's chat template may be read
// from.
func templateFiles(folder fs.FS) ([]string, error) {
	named, err := fs.Glob(folder, "additional_chat_templates/*.jinja")
	return append([]string{configFile, specialFile, templateJSON, templateJinja}, named...), err
}

// FilesFS returns the contents of all files in a folder that LoadFS may read, each preceded by its
// name and length. Hash the result to find out whether a template has changed: folders with equal
// results have the same template.
func FilesFS(folder fs.FS) ([]byte, error) {
	names, err := templateFiles(folder)
	if err != nil {
		return nil, err
	}
	var all []byte
	for _, name := range names {
		data, err := fs.ReadFile(folder, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		all = append(fmt.Appendf(all, "%s %d\n", name, len(data)), data...)
	}
	return all, nil
}

// Save writes the template to a folder as transformers does: chat_template.jinja, and templates
// with other names in additional_chat_templates. They take precedence over other templates in the
// folder.
func (t *Template) Save(dir string) error {
	for name, p := range t.programs {
		file := filepath.Join(dir, templateJinja)
		if name != "default" {
			file = filepath.Join(dir, "additional_chat_templates", name+".jinja")
			if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
				return err
			}
		}
		if err := os.WriteFile(file, []byte(p.source), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// readConfig reads the templates and the special tokens from a configuration. It reports
// whether the configuration lists the added tokens; if so, the older
// special_tokens_map.json is not needed.
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

// Sources returns the texts of all templates by name; "default" is the usual one.
func (t *Template) Sources() map[string]string {
	sources := map[string]string{}
	for name, p := range t.programs {
		sources[name] = p.source
	}
	return sources
}
