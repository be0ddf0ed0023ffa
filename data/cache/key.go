package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Recipe is what entries are made with. Whatever changes the tensors belongs
// here: a new recipe makes every entry of its kind anew.
type Recipe struct {
	// Model names the encoder and its revision.
	Model string `json:"model"`
	// Settings are sizes, lengths, element types and the like.
	Settings map[string]string `json:"settings,omitempty"`
}

// check refuses what JSON would not keep as it is.
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

// kind is what an entry is made of.
type kind string

const (
	textKind      kind = "text"
	textImageKind kind = "text with image"
	imageKind     kind = "image"
	controlKind   kind = "control image"
)

// record is what an entry's metadata says of how it was made.
type record struct {
	Kind kind `json:"kind"`
	Recipe
}

// json is the record with sorted keys: equal records are equal texts.
func (r record) json() string {
	raw, _ := json.Marshal(r) // of strings: never fails
	return string(raw)
}

// makeKey is the digest of a recipe, as text, and of the contents of its
// sources: what an entry depends on.
func makeKey(recipe string, sources []digest) string {
	var b strings.Builder
	b.WriteString("lorafuse cache 1\n" + recipe + "\n")
	for _, d := range sources {
		b.WriteString(string(d) + "\n")
	}
	return string(digestOf([]byte(b.String())))
}

// digest is a SHA-256 in hexadecimal digits.
type digest string

func digestOf(data []byte) digest {
	sum := sha256.Sum256(data)
	return digest(hex.EncodeToString(sum[:]))
}
