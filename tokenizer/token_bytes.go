package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// TokenBytes returns, by id, the bytes that each token adds to a text when it is not
// the first token. Decode returns the concatenated bytes of several tokens if they are
// valid UTF-8. The first token of a text may lack a leading space. A token of
// byte-level or byte-fallback models may be part of a character. Added tokens, special
// or not, have no bytes, nor do ids without a token.
//
// It fails with [ErrUnsupported] for a decoder that does not decode tokens
// independently.
func (t *Tokenizer) TokenBytes() ([][]byte, error) {
	fused := false
	for _, d := range t.decoders {
		if !byToken(d, fused) {
			return nil, fmt.Errorf("%w: what the decoder %T writes for a token depends on those beside it", ErrUnsupported, d)
		}
		fused = fused || d.fuses()
	}
	var out [][]byte
	found := 0
	for id := int32(0); found < t.model.size() && id <= maxTokenID; id++ {
		token, ok := t.model.token(id)
		if !ok {
			continue
		}
		found++
		if _, added := t.added.byID[id]; added {
			continue
		}
		for int(id) >= len(out) {
			out = append(out, nil)
		}
		fused := false
		for _, d := range t.decoders {
			token = inside(d, token, fused)
			fused = fused || d.fuses()
		}
		out[id] = []byte(token)
	}
	return out, nil
}

// byToken reports whether a step decodes tokens independently, except for the
// first.
func byToken(d decoder, fused bool) bool {
	switch d := d.(type) {
	case ctc:
		return false
	case byteLevelDecoder, fuser:
		return true
	case replaceDecoder:
		l, ok := d.pattern.(literal)
		return !fused || ok && utf8.RuneCountInString(string(l)) == 1
	case stripDecoder:
		return !fused || d.stop == 0
	}
	return !fused
}

// inside returns the output of a step for a token that is neither the first nor
// the last.
func inside(d decoder, token string, fused bool) string {
	switch d := d.(type) {
	case byteLevelDecoder:
		if b, ok := bytesOf(nil, token); ok {
			return string(b)
		}
		return token
	case byteFallback:
		if b, ok := fallbackByte(token); ok {
			return string([]byte{b})
		}
		return token
	case suffixDecoder:
		return strings.ReplaceAll(token, string(d), " ")
	case stripDecoder:
		if fused {
			return token // only the start of the text is stripped
		}
	}
	var text textSink
	steps := d.open(&text, false)
	steps.token("x")
	text.takeText()
	steps.token(token)
	return text.takeText()
}
