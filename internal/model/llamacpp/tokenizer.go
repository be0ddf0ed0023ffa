package llamacpp

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// The types of tokens.
const (
	tokenNormal      = 1
	tokenUnknown     = 2
	tokenControl     = 3
	tokenUserDefined = 4
	tokenUnused      = 5
	tokenByte        = 6
)

// The regular expressions of pre-tokenizers, as they are in tokenizer.json.
const (
	cl100k   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	oneDigit = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	tekken   = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	o200k    = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// Steps of a pre-tokenizer that are not regular expressions.
const (
	digitsStep = "digits" // each digit by itself
	gpt2Step   = "gpt2"   // ByteLevel with its own regular expression
	bytesStep  = "bytes"  // ByteLevel without one
)

// pre is a pre-tokenizer of llama.cpp.
type pre struct {
	name  string
	steps []string
	// whole reports that words that are tokens are not merged (ignore_merges).
	whole bool
	// composed reports that the models with this pre-tokenizer compose characters first
	// (NFC), which llama.cpp leaves out.
	composed bool
	// aliases are other names of the same pre-tokenizer.
	aliases []string
}

// pres is the table of pre-tokenizers. The first one with the steps is written.
var pres = []pre{
	{name: "qwen2", steps: []string{oneDigit, bytesStep}, composed: true, aliases: []string{"deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan"}},
	{name: "llama-bpe", steps: []string{cl100k, bytesStep}, whole: true, aliases: []string{"llama3", "llama-v3", "falcon3", "pixtral"}},
	{name: "dbrx", steps: []string{cl100k, bytesStep}, aliases: []string{"smaug-bpe", "glm4", "chatglm-bpe"}},
	{name: "tekken", steps: []string{tekken, bytesStep}, whole: true},
	{name: "gpt-4o", steps: []string{o200k, bytesStep}, aliases: []string{"llama4"}},
	{name: "smollm", steps: []string{digitsStep, gpt2Step}, aliases: []string{"starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"}},
	{name: "gpt-2", steps: []string{gpt2Step}, aliases: []string{"olmo", "phi-2", "exaone4", "mpt", "jais", "roberta-bpe"}},
}

// addedToken is an entry of added_tokens in tokenizer.json.
type addedToken struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// step is a normalizer, a pre-tokenizer or a decoder of tokenizer.json.
type step struct {
	Type             string  `json:"type"`
	Pretokenizers    []*step `json:"pretokenizers,omitempty"`
	Normalizers      []*step `json:"normalizers,omitempty"`
	Decoders         []*step `json:"decoders,omitempty"`
	Pattern          any     `json:"pattern,omitempty"`
	Behavior         string  `json:"behavior,omitempty"`
	Content          *string `json:"content,omitempty"`
	Prepend          string  `json:"prepend,omitempty"`
	PrependScheme    string  `json:"prepend_scheme,omitempty"`
	Replacement      string  `json:"replacement,omitempty"`
	Split            *bool   `json:"split,omitempty"`
	IndividualDigits *bool   `json:"individual_digits,omitempty"`
	AddPrefixSpace   *bool   `json:"add_prefix_space,omitempty"`
	TrimOffsets      *bool   `json:"trim_offsets,omitempty"`
	UseRegex         *bool   `json:"use_regex,omitempty"`
	Invert           *bool   `json:"invert,omitempty"`
	Start            *int    `json:"start,omitempty"`
	Stop             *int    `json:"stop,omitempty"`
}

// tokenizerJSON is the content of tokenizer.json.
type tokenizerJSON struct {
	Version       string       `json:"version"`
	Truncation    any          `json:"truncation"`
	Padding       any          `json:"padding"`
	AddedTokens   []addedToken `json:"added_tokens"`
	Normalizer    *step        `json:"normalizer"`
	PreTokenizer  *step        `json:"pre_tokenizer"`
	PostProcessor any          `json:"post_processor"`
	Decoder       *step        `json:"decoder"`
	Model         bpeModel     `json:"model"`
}

// bpeModel is the model of a BPE tokenizer.
type bpeModel struct {
	Type         string          `json:"type"`
	UnkToken     *string         `json:"unk_token"`
	FuseUnk      bool            `json:"fuse_unk"`
	ByteFallback bool            `json:"byte_fallback"`
	IgnoreMerges bool            `json:"ignore_merges"`
	Vocab        json.RawMessage `json:"vocab"`
	Merges       json.RawMessage `json:"merges"`
}

// flatten returns the steps of sequences.
func flatten(s *step) []*step {
	if s == nil {
		return nil
	}
	if s.Type != "Sequence" {
		return []*step{s}
	}
	var all []*step
	for _, x := range slices.Concat(s.Pretokenizers, s.Normalizers, s.Decoders) {
		all = append(all, flatten(x)...)
	}
	return all
}

func isTrue(b *bool) bool { return b != nil && *b }

// regex returns the regular expression or the text of a pattern.
func (s *step) regex() (text string, isRegex bool) {
	m, _ := s.Pattern.(map[string]any)
	if text, ok := m["Regex"].(string); ok {
		return text, true
	}
	text, _ = m["String"].(string)
	return text, false
}

// preOf returns the name of the pre-tokenizer of a tokenizer of bytes.
func preOf(t *tokenizerJSON) (string, error) {
	for _, s := range flatten(t.Normalizer) {
		if s.Type != "NFC" {
			return "", fmt.Errorf("%w: tokenizer.json: normalizer %s; supported: none, NFC", ErrUnsupported, s.Type)
		}
	}
	var steps []string
	for _, s := range flatten(t.PreTokenizer) {
		text, isRegex := s.regex()
		switch {
		case s.Type == "ByteLevel" && !isTrue(s.AddPrefixSpace) && (s.UseRegex == nil || *s.UseRegex):
			steps = append(steps, gpt2Step)
		case s.Type == "ByteLevel" && !isTrue(s.AddPrefixSpace):
			steps = append(steps, bytesStep)
		case s.Type == "Digits" && isTrue(s.IndividualDigits):
			steps = append(steps, digitsStep)
		case s.Type == "Split" && isRegex && s.Behavior == "Isolated" && !isTrue(s.Invert):
			steps = append(steps, text)
		default:
			return "", fmt.Errorf("%w: tokenizer.json: pre_tokenizer %s", ErrUnsupported, s.Type)
		}
	}
	for _, p := range pres {
		if slices.Equal(p.steps, steps) && p.whole == t.Model.IgnoreMerges {
			return p.name, nil
		}
	}
	var names []string
	for _, p := range pres {
		names = append(names, p.name)
	}
	return "", fmt.Errorf("%w: tokenizer.json: its pre_tokenizer (%s, ignore_merges %v) is none of llama.cpp's; supported: %s", ErrUnsupported, strings.Join(steps, "; "), t.Model.IgnoreMerges, strings.Join(names, ", "))
}
