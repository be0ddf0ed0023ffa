package tokenizer

import (
	"bytes"
	"encoding/json"
)

// componentType returns the "type" of a component of tokenizer.json, "" for null or a
// missing component.
func componentType(kind string, raw json.RawMessage) (string, error) {
	if isNull(raw) {
		return "", nil
	}
	var c struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return "", malformed("%s: %v", kind, err)
	}
	if c.Type == "" {
		return "", malformed("%s without a type", kind)
	}
	return c.Type, nil
}

func isNull(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) == 0 || string(raw) == "null"
}

// oneRune parses a setting that must be a single character.
func oneRune(what, s string) (rune, error) {
	runes := []rune(s)
	if len(runes) != 1 {
		return 0, malformed("%s %q is not one character", what, s)
	}
	return runes[0], nil
}
