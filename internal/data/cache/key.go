package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Recipe identifies how entries are built. It must include everything that affects the tensors: a new recipe
// invalidates all entries of its kind.
type Recipe struct {
	// Model is the encoder and its revision.
	Model string `json:"model"`
	// Settings are sizes, lengths, element types and similar.
	Settings map[string]string `json:"settings,omitempty"`
}

// check returns an error for text that JSON would not preserve.
func (r Recipe) check(name string) error {
	texts := []string{r.Model}
	for k, v := range r.Settings {
		texts = append(texts, k, v)
	}
	for _, s := range texts {
		if !utf8.ValidString(s) {
			return fmt.Errorf("cache: recipe of %s: found %q, expected UTF-8: %w", name, s, ErrOption)
		}
	}
	if r.Model == "" && len(r.Settings) > 0 {
		return fmt.Errorf("cache: recipe of %s: found settings without a model: %w", name, ErrOption)
	}
	return nil
}

// kind is the kind of an entry.
type kind string

const (
	textKind      kind = "text"
	textImageKind kind = "text with image"
	imageKind     kind = "image"
	controlKind   kind = "control image"
)

// record is the description of a recipe in the metadata of an entry.
type record struct {
	Kind kind `json:"kind"`
	Recipe
}

// json returns the record with sorted keys, so that equal records have equal text.
func (r record) json() string {
	raw, _ := json.Marshal(r) // marshalling strings never fails
	return string(raw)
}

// makeKey returns the digest of a recipe, as text, and of the contents of its sources.
func makeKey(recipe string, sources []digest) string {
	var b strings.Builder
	b.WriteString("lorafuse cache 1\n" + recipe + "\n")
	for _, d := range sources {
		b.WriteString(string(d) + "\n")
	}
	return string(digestOf([]byte(b.String())))
}

// digest is a SHA-256 in hexadecimal.
type digest string

func digestOf(data []byte) digest {
	sum := sha256.Sum256(data)
	return digest(hex.EncodeToString(sum[:]))
}
