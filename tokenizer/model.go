package tokenizer

import "encoding/json"

// A model converts a piece of text to ids.
type model interface {
	// encode appends the ids of text, which is not empty.
	encode(dst []int32, text string) ([]int32, error)
	id(token string) (int32, bool)
	token(id int32) (string, bool)
	size() int // number of tokens
}

// readModel parses the "model" of a tokenizer.json.
func readModel(raw json.RawMessage) (model, error) {
	if isNull(raw) {
		return nil, malformed("model is missing")
	}
	var c struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, malformed("model: %v", err)
	}
	if c.Type == "" { // in older files the fields imply the type
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(raw, &fields); err != nil {
			return nil, malformed("model: %v", err)
		}
		switch {
		case fields["merges"] != nil:
			c.Type = "BPE"
		case fields["max_input_chars_per_word"] != nil:
			c.Type = "WordPiece"
		case fields["unk_id"] != nil:
			c.Type = "Unigram"
		default:
			c.Type = "WordLevel"
		}
	}
	switch c.Type {
	case "BPE":
		return readBPE(raw)
	case "WordPiece":
		return readWordPiece(raw)
	case "WordLevel":
		return readWordLevel(raw)
	case "Unigram":
		return readUnigram(raw)
	}
	return nil, unsupported("model", c.Type, "BPE", "Unigram", "WordLevel", "WordPiece")
}

// vocabulary maps tokens to ids and back.
type vocabulary struct {
	ids    map[string]int32
	tokens []string // by id; "" for unused ids
}

// maxTokenID bounds the memory allocated for an invalid file.
const maxTokenID = 1 << 21

func newVocabulary(ids map[string]int32) (vocabulary, error) {
	v := vocabulary{ids: ids}
	size := 0
	for token, id := range ids {
		if id < 0 || id > maxTokenID {
			return v, malformed("token %q has id %d; ids are 0 to %d", token, id, maxTokenID)
		}
		size = max(size, int(id)+1)
	}
	v.tokens = make([]string, size)
	for token, id := range ids {
		// If two tokens share an id, keep the smaller one, so that the result is
		// deterministic.
		if old := v.tokens[id]; old == "" || token < old {
			v.tokens[id] = token
		}
	}
	return v, nil
}

func (v *vocabulary) id(token string) (int32, bool) {
	id, ok := v.ids[token]
	return id, ok
}

func (v *vocabulary) token(id int32) (string, bool) {
	if id < 0 || int(id) >= len(v.tokens) {
		return "", false
	}
	token := v.tokens[id]
	if token == "" {
		got, ok := v.ids[""]
		return "", ok && got == id
	}
	return token, true
}

func (v *vocabulary) size() int { return len(v.ids) }
