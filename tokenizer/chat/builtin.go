package chat

import (
	"embed"
	"os"
	"slices"
	"strings"
)

//go:embed builtin/*.jinja
var builtin embed.FS

// BuiltIn lists the names of the built-in templates, which [Find] takes in place of a file. They are for base models without a template, and refuse tools.
func BuiltIn() []string { return []string{"chatml", "gemma", "llama3", "mistral"} }

// builtIn returns the source of a built-in template.
func builtIn(name string) (source string, ok bool) {
	if !slices.Contains(BuiltIn(), name) {
		return "", false
	}
	raw, err := builtin.ReadFile("builtin/" + name + ".jinja")
	return strings.TrimSuffix(string(raw), "\n"), err == nil
}

// Source returns the text of the template in file, or of the built-in template of that name.
func Source(file string) (string, error) {
	if source, ok := builtIn(file); ok {
		return source, nil
	}
	raw, err := os.ReadFile(file)
	return string(raw), err
}
