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

// The files of a tokenizer of byte pairs that has been saved without tokenizer.json, as
// those of many pipelines of diffusers.
const (
	vocabularyFile = "vocab.json"
	mergesFile     = "merges.txt"
)

// rules are what tokenizer.json says beside vocabulary and merges.
type rules struct {
	BOS, EOS string // unless the configuration says otherwise
	Suffix   string // of the last piece of a word
	Framed   bool   // texts are put between BOS and EOS
	Unknown  bool   // EOS stands for what is not in the vocabulary
	Parts    string // normalizer, pre_tokenizer and decoder
}

// classRules are those of the classes that transformers has rules of.
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

// readVocabulary makes a tokenizer.json of vocab.json and merges.txt in a folder, by the
// rules that transformers has for the class which the configuration names. It gives nil
// where these files are not there. Errors: ErrUnsupported for other classes, ErrFormat.
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

// join writes tokenizer.json.
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
	added := []addedToken{} // the configuration lists the others
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

// idOf is the id of a token that the configuration lists or that is in a vocabulary.
func (c *config) idOf(token string, vocabulary map[string]int32) (int32, bool) {
	for id, t := range c.AddedTokensDecoder {
		if n, err := strconv.ParseInt(id, 10, 32); err == nil && t.Content == token {
			return int32(n), true
		}
	}
	id, ok := vocabulary[token]
	return id, ok
}

// pairs are the merges of a file, without the line of its version.
func pairs(merges []byte) []string {
	lines := []string{}
	for line := range strings.Lines(string(merges)) {
		if line = strings.TrimRight(line, "\r\n"); line != "" && !strings.HasPrefix(line, "#version") {
			lines = append(lines, line)
		}
	}
	return lines
}
