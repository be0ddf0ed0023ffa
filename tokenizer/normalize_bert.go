package tokenizer

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// newBertNormalizer returns the normalization steps of BERT's basic tokenizer, in its
// order.
func newBertNormalizer(clean, chinese, accents, lower bool) normalizerSequence {
	var seq normalizerSequence
	if clean {
		seq = append(seq, remover{controlTable}, spaceEqualizer{})
	}
	if chinese {
		seq = append(seq, chineseSpacer{})
	}
	if accents {
		seq = append(seq, unicodeForm{form: norm.NFD, decomposed: norm.NFD}, remover{nonspacingTable})
	}
	if lower {
		seq = append(seq, lowercaser{})
	}
	return seq
}

// spaceEqualizer replaces all white space with spaces.
type spaceEqualizer struct{}

func (spaceEqualizer) normalize(s string) (string, bool) {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, s), true
}

// chineseSpacer inserts spaces around each Chinese character.
type chineseSpacer struct{}

func (chineseSpacer) normalize(s string) (string, bool) {
	if !strings.ContainsFunc(s, isChinese) {
		return s, true
	}
	var b strings.Builder
	b.Grow(len(s) * 2)
	for _, r := range s {
		if isChinese(r) {
			b.WriteByte(' ')
			b.WriteRune(r)
			b.WriteByte(' ')
		} else {
			b.WriteRune(r)
		}
	}
	return b.String(), true
}
