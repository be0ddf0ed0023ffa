package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// bpe implements byte-pair encoding: a word starts as single characters, and the adjacent
// pair with the lowest rank is merged until no known pair is left.
type bpe struct {
	vocabulary
	merges       map[pair]merger
	unknown      *string
	prefix       string // of every character except the first in a word
	suffix       string // of the last character in a word
	fuseUnknown  bool   // encode a run of unknown characters as one unknown token
	ignoreMerges bool   // encode a word in the vocabulary as that token
	bytes        *[256]int32
	cache        *wordCache
}

type pair struct{ left, right int32 }

type merger struct{ rank, id int32 }

func readBPE(raw json.RawMessage) (model, error) {
	var c struct {
		Vocab        map[string]int32 `json:"vocab"`
		Merges       json.RawMessage  `json:"merges"`
		Dropout      *float64         `json:"dropout"`
		Unknown      *string          `json:"unk_token"`
		Prefix       *string          `json:"continuing_subword_prefix"`
		Suffix       *string          `json:"end_of_word_suffix"`
		FuseUnknown  bool             `json:"fuse_unk"`
		ByteFallback bool             `json:"byte_fallback"`
		IgnoreMerges bool             `json:"ignore_merges"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, malformed("model BPE: %v", err)
	}
	if c.Dropout != nil && *c.Dropout != 0 {
		return nil, unsupported("BPE dropout", fmt.Sprint(*c.Dropout), "null", "0")
	}
	if c.Vocab == nil || isNull(c.Merges) {
		return nil, malformed("model BPE: vocab or merges is missing")
	}
	v, err := newVocabulary(c.Vocab)
	if err != nil {
		return nil, err
	}
	m := &bpe{
		vocabulary: v, unknown: c.Unknown,
		fuseUnknown: c.FuseUnknown, ignoreMerges: c.IgnoreMerges, cache: newWordCache(),
	}
	if c.Prefix != nil {
		m.prefix = *c.Prefix
	}
	if c.Suffix != nil {
		m.suffix = *c.Suffix
	}
	if c.ByteFallback {
		m.bytes = byteTokens(v.ids)
	}
	merges, err := readMerges(c.Merges)
	if err != nil {
		return nil, err
	}
	return m, m.addMerges(merges)
}

// readMerges parses the merges as pairs or, in older files, as "left right".
func readMerges(raw json.RawMessage) ([][2]string, error) {
	var pairs [][]string
	if err := json.Unmarshal(raw, &pairs); err == nil {
		merges := make([][2]string, len(pairs))
		for i, p := range pairs {
			if len(p) != 2 {
				return nil, malformed("model BPE: merge %d has %d parts, expected 2", i, len(p))
			}
			merges[i] = [2]string{p[0], p[1]}
		}
		return merges, nil
	}
	var lines []string
	if err := json.Unmarshal(raw, &lines); err != nil {
		return nil, malformed("model BPE: merges are neither pairs nor strings: %v", err)
	}
	merges := make([][2]string, 0, len(lines))
	for i, line := range lines {
		if strings.HasPrefix(line, "#version") {
			continue
		}
		left, right, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(right, " ") {
			return nil, malformed("model BPE: merge %d is %q, expected two tokens", i, line)
		}
		merges = append(merges, [2]string{left, right})
	}
	return merges, nil
}

func (m *bpe) addMerges(merges [][2]string) error {
	m.merges = make(map[pair]merger, len(merges))
	for rank, parts := range merges {
		left, right := parts[0], parts[1]
		if len(right) < len(m.prefix) {
			return malformed("model BPE: merge %d: %q is shorter than the prefix %q", rank, right, m.prefix)
		}
		ids := [3]int32{}
		for i, token := range [3]string{left, right, left + right[len(m.prefix):]} {
			id, ok := m.ids[token]
			if !ok {
				return malformed("model BPE: merge %d: %q is not in the vocabulary", rank, token)
			}
			ids[i] = id
		}
		m.merges[pair{ids[0], ids[1]}] = merger{int32(rank), ids[2]}
	}
	return nil
}

// byteTokens returns the ids of the tokens <0x00> to <0xFF>, noID for missing
// ones.
func byteTokens(ids map[string]int32) *[256]int32 {
	t := new([256]int32)
	for b := range t {
		t[b] = noID
		if id, ok := ids[fmt.Sprintf("<0x%02X>", b)]; ok {
			t[b] = id
		}
	}
	return t
}

// appendByteTokens appends one token per byte of s, or nothing if one is missing.
func appendByteTokens(dst []int32, t *[256]int32, s string) ([]int32, bool) {
	n := len(dst)
	for i := 0; i < len(s); i++ {
		if t[s[i]] == noID {
			return dst[:n], false
		}
		dst = append(dst, t[s[i]])
	}
	return dst, true
}

func (m *bpe) encode(dst []int32, word string) ([]int32, error) {
	if m.ignoreMerges {
		if id, ok := m.ids[word]; ok {
			return append(dst, id), nil
		}
	}
	dst, ok := m.cache.get(dst, word)
	if ok {
		return dst, nil
	}
	n := len(dst)
	dst, err := m.appendSymbols(dst, word)
	if err != nil {
		return nil, err
	}
	dst = dst[:n+m.merge(dst[n:])]
	m.cache.add(word, dst[n:])
	return dst, nil
}

// appendSymbols appends the tokens of the single characters in word.
func (m *bpe) appendSymbols(dst []int32, word string) ([]int32, error) {
	unknowns := false // the last symbol is an unknown token that may absorb the next
	for i := 0; i < len(word); {
		_, size := utf8.DecodeRuneInString(word[i:])
		char := word[i : i+size]
		token := char
		if i > 0 && m.prefix != "" {
			token = m.prefix + token
		}
		if i+size == len(word) && m.suffix != "" {
			token += m.suffix
		}
		i += size
		if id, ok := m.ids[token]; ok {
			dst, unknowns = append(dst, id), false
			continue
		}
		if m.bytes != nil {
			var ok bool
			// Encode the bytes of the token with its prefix and suffix. They precede an
			// unknown token that is waiting to be fused.
			if dst, ok = m.insertBytes(dst, token, unknowns); ok {
				continue
			}
		}
		if m.unknown == nil {
			continue // the library drops such characters too
		}
		if m.fuseUnknown && unknowns {
			continue
		}
		id, ok := m.ids[*m.unknown]
		if !ok {
			return nil, fmt.Errorf("%w: %q, and unk_token %q is not a token", ErrUnknownText, char, *m.unknown)
		}
		dst, unknowns = append(dst, id), true
	}
	return dst, nil
}

// insertBytes appends byte tokens, before the last token if open is set.
func (m *bpe) insertBytes(dst []int32, s string, open bool) ([]int32, bool) {
	if !open {
		return appendByteTokens(dst, m.bytes, s)
	}
	last := dst[len(dst)-1]
	dst, ok := appendByteTokens(dst[:len(dst)-1], m.bytes, s)
	return append(dst, last), ok
}
