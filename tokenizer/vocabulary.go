package tokenizer

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The files of a byte-pair tokenizer that was saved without tokenizer.json, as in many
// pipelines of diffusers.
const (
	vocabularyFile = "vocab.json"
	mergesFile     = "merges.txt"
)

// rules describe a tokenizer class: everything in its tokenizer.json except
// vocabulary and merges.
type rules struct {
	BOS, EOS string // defaults; the configuration takes precedence
	Suffix   string // of the last piece of a word
	Framed   bool   // put texts between BOS and EOS
	Unknown  bool   // use EOS as the unknown token
	Parts    string // normalizer, pre_tokenizer and decoder
}

// classRules holds the rules of the classes for which transformers defines
// rules.
var classRules = map[string]rules{
	"CLIPTokenizer": {
		BOS: "<|startoftext|>", EOS: "<|endoftext|>", Suffix: "</w>", Framed: true, Unknown: true,
		Parts: `{"normalizer": {"type": "Sequence", "normalizers": [
				{"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "}, {"type": "Lowercase"}]},
			"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
				{"type": "Split", "behavior": "Removed", "invert": true, "pattern": {
					"Regex": "<\\|startoftext\\|>|<\\|endoftext\\|>|'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+"}},
				{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}]},
			"decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}}`,
	},
	"Qwen2Tokenizer": {
		EOS: "<|endoftext|>",
		Parts: `{"normalizer": {"type": "NFC"},
			"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
				{"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {
					"Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
				{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]},
			"decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}}`,
	},
}

// readVocabulary builds a tokenizer.json from vocab.json and merges.txt in a folder, by
// the rules of transformers for the class named in the configuration. It returns nil if
// these files do not exist. Errors: ErrUnsupported for other classes, ErrFormat.
func readVocabulary(dir string, configJSON []byte) ([]byte, error) {
	vocabulary, err := os.ReadFile(filepath.Join(dir, vocabularyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	merges, err := os.ReadFile(filepath.Join(dir, mergesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c, err := readConfig(configJSON, nil)
	if err != nil {
		return nil, err
	}
	r, ok := classRules[strings.TrimSuffix(c.Class, "Fast")]
	if !ok {
		return nil, unsupported("without "+tokenizerFile+" a tokenizer of class", c.Class, slices.Sorted(maps.Keys(classRules))...)
	}
	for _, s := range []struct {
		name *string
		own  specialToken
	}{{&r.BOS, c.BOS}, {&r.EOS, c.EOS}} {
		if s.own.Content != "" {
			*s.name = s.own.Content
		}
	}
	return r.join(vocabulary, merges, c)
}

// join builds tokenizer.json.
func (r rules) join(vocabulary, merges []byte, c *config) ([]byte, error) {
	var ids map[string]int32
	if err := json.Unmarshal(vocabulary, &ids); err != nil {
		return nil, malformed("%s: %v", vocabularyFile, err)
	}
	bpe := map[string]any{"type": "BPE", "vocab": json.RawMessage(vocabulary), "merges": pairs(merges), "end_of_word_suffix": r.Suffix}
	if r.Unknown {
		bpe["unk_token"] = r.EOS
	}
	var all map[string]any
	if err := json.Unmarshal([]byte(r.Parts), &all); err != nil {
		return nil, malformed("%v", err)
	}
	all["model"] = bpe
	added := []addedToken{} // the configuration lists the other added tokens
	for _, token := range []string{r.BOS, r.EOS} {
		if id, ok := c.idOf(token, ids); ok {
			added = append(added, addedToken{ID: id, Content: token, Special: true})
		} else if r.Framed {
			return nil, malformed("%s: it has no %q", vocabularyFile, token)
		}
	}
	all["added_tokens"] = added
	if r.Framed {
		end := func(t addedToken) [2]any { return [2]any{t.Content, t.ID} }
		all["post_processor"] = map[string]any{
			"type": "RobertaProcessing", "trim_offsets": false, "add_prefix_space": false, "cls": end(added[0]), "sep": end(added[1]),
		}
	}
	return json.Marshal(all)
}

// idOf returns the id of a token in the configuration or the vocabulary.
func (c *config) idOf(token string, vocabulary map[string]int32) (int32, bool) {
	for id, t := range c.AddedTokensDecoder {
		if n, err := strconv.ParseInt(id, 10, 32); err == nil && t.Content == token {
			return int32(n), true
		}
	}
	id, ok := vocabulary[token]
	return id, ok
}

// pairs returns the merges of a file, without its version line.
func pairs(merges []byte) []string {
	lines := []string{}
	for line := range strings.Lines(string(merges)) {
		if line = strings.TrimRight(line, "\r\n"); line != "" && !strings.HasPrefix(line, "#version") {
			lines = append(lines, line)
		}
	}
	return lines
}
