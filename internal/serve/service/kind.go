package service

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// GeneratesText reports whether the model in dir is a language model that is meant as
// one, and not for embeddings.
func GeneratesText(dir string) (bool, error) {
	if _, err := os.Stat(filepath.Join(dir, "modules.json")); err == nil {
		return false, nil
	}
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil // opening the model reports errors
	}
	if err != nil {
		return false, err
	}
	var c struct {
		Architectures []string `json:"architectures"`
		Causal        *bool    `json:"is_causal"`
		Bidirectional bool     `json:"use_bidirectional_attention"`
	}
	if json.Unmarshal(raw, &c) != nil || len(c.Architectures) == 0 {
		return true, nil
	}
	return strings.HasSuffix(c.Architectures[0], "ForCausalLM") && (c.Causal == nil || *c.Causal) && !c.Bidirectional, nil
}
