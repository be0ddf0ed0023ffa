package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Tokenizer converts text to token ids and back. It is safe for concurrent use.
type Tokenizer struct {
	added        *addedVocabulary
	normalizer   normalizer
	preTokenizer preTokenizer
	model        model
	single, pair layout // of one text and of two
	pairErr      error  // reason why two texts cannot be joined
	decoders     []decoder
	size         int

	bos, eos, pad, unk int32 // noID if undefined

	cutLeft bool // truncate at the beginning
	untyped bool // the model gets no token_type_ids
}

// Encode returns the token ids of text. If addSpecial is set, it adds the tokens that
// the model expects around a text (such as a beginning-of-sequence token). Special
// tokens in the text itself are recognized in either case. Text that is not valid UTF-8
// gives [ErrInvalidUTF8].
func (t *Tokenizer) Encode(text string, addSpecial bool) ([]int32, error) {
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("%w: at byte %d", ErrInvalidUTF8, invalidAt(text))
	}
	ids := make([]int32, 0, len(text)/3+4)
	var err error
	for _, p := range t.pieces(text) {
		if p.id != noID {
			ids = append(ids, p.id)
			continue
		}
		if ids, err = t.model.encode(ids, p.text); err != nil {
			return nil, err
		}
	}
	if addSpecial {
		ids = t.single.join(ids)
	}
	return ids, nil
}

// pieces splits text into added tokens and the pieces for the model to encode.
func (t *Tokenizer) pieces(text string) []piece {
	var out []piece
	for _, p := range t.added.cut(nil, text, true, &t.added.raw) {
		if p.id != noID {
			out = append(out, p)
			continue
		}
		if t.normalizer != nil {
			var kept bool
			p.text, kept = t.normalizer.normalize(p.text)
			p.atStart = p.atStart && kept
		}
		out = t.added.cut(out, p.text, p.atStart, &t.added.normal)
	}
	if t.preTokenizer != nil {
		out = t.preTokenizer.split(out)
	}
	return out
}

// Decode returns the text of token ids, without special tokens if skipSpecial is set. It
// ignores ids without a token, because models often have more embedding rows than the
// tokenizer has tokens. A negative id gives [ErrTokenID].
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) (string, error) {
	s := t.NewStream(skipSpecial)
	for i, id := range ids {
		if err := s.step(id); err != nil {
			return "", fmt.Errorf("%w at position %d", err, i)
		}
	}
	return s.Flush(), nil
}

// VocabSize returns the number of tokens, including added tokens. The largest id may be
// larger, and a model's embedding may have more rows.
func (t *Tokenizer) VocabSize() int { return t.size }

// TokenID returns the id of a token, given in the form used in the vocabulary.
func (t *Tokenizer) TokenID(token string) (int32, bool) {
	if id, ok := t.added.byContent[token]; ok {
		return id, true
	}
	return t.model.id(token)
}

// Token returns the token with the given id, in the form used in the
// vocabulary.
func (t *Tokenizer) Token(id int32) (string, bool) {
	if a, ok := t.added.byID[id]; ok {
		return a.Content, true
	}
	return t.model.token(id)
}

// EOS returns the end-of-sequence token, if tokenizer_config.json defines one.
func (t *Tokenizer) EOS() (int32, bool) { return t.eos, t.eos != noID }

// StopTokens returns the tokens at which generation ends: named, the eos_token_id of a model's
// configuration, or the EOS token if named is empty.
func (t *Tokenizer) StopTokens(named []int32) []int32 {
	if len(named) > 0 || t.eos == noID {
		return named
	}
	return []int32{t.eos}
}

// BOS returns the beginning-of-sequence token, if tokenizer_config.json defines
// one.
func (t *Tokenizer) BOS() (int32, bool) { return t.bos, t.bos != noID }

// PAD returns the padding token, if tokenizer_config.json defines one.
func (t *Tokenizer) PAD() (int32, bool) { return t.pad, t.pad != noID }

// UNK returns the token for unknown text, if tokenizer_config.json defines one.
func (t *Tokenizer) UNK() (int32, bool) { return t.unk, t.unk != noID }

// SpecialTokens returns the texts of the BOS, EOS, PAD and UNK tokens by their
// names in chat templates, such as bos_token.
func (t *Tokenizer) SpecialTokens() map[string]string {
	tokens := map[string]string{}
	for name, id := range map[string]int32{"bos_token": t.bos, "eos_token": t.eos, "pad_token": t.pad, "unk_token": t.unk} {
		if text, ok := t.Token(id); ok && id != noID {
			tokens[name] = text
		}
	}
	return tokens
}

func invalidAt(text string) int {
	for i, r := range text {
		if r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)) {
			return i
		}
	}
	return len(text)
}
