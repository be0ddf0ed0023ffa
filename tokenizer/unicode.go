package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// The classes of ASCII characters, in one table because most text is ASCII.
const (
	classLetter = 1 << iota
	classNumber
	classSpace
)

var asciiClass = func() (t [utf8.RuneSelf]uint8) {
	for c := range t {
		switch r := rune(c); {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z':
			t[c] = classLetter
		case '0' <= r && r <= '9':
			t[c] = classNumber
		case r == ' ', '\t' <= r && r <= '\r':
			t[c] = classSpace
		}
	}
	return t
}()

func isLetter(r rune) bool {
	if r < utf8.RuneSelf {
		return asciiClass[r]&classLetter != 0
	}
	return unicode.Is(letterTable, r)
}

func isNumber(r rune) bool {
	if r < utf8.RuneSelf {
		return asciiClass[r]&classNumber != 0
	}
	return unicode.Is(numberTable, r)
}

func isSpace(r rune) bool {
	if r < utf8.RuneSelf {
		return asciiClass[r]&classSpace != 0
	}
	return unicode.IsSpace(r)
}

// isSymbol reports whether r matches [^\s\p{L}\p{N}]: neither space nor letter
// nor number.
func isSymbol(r rune) bool {
	if r < utf8.RuneSelf {
		return asciiClass[r] == 0
	}
	return !unicode.IsSpace(r) && !unicode.Is(letterTable, r) && !unicode.Is(numberTable, r)
}

func isNumeric(r rune) bool     { return unicode.Is(numericTable, r) }
func isPunctuation(r rune) bool { return unicode.Is(punctuationTable, r) }
func isWord(r rune) bool        { return unicode.Is(wordTable, r) }

// isChinese reports whether BERT surrounds a character with spaces.
func isChinese(r rune) bool {
	switch {
	case r < 0x3400:
		return false
	case r <= 0x4DBF, 0x4E00 <= r && r <= 0x9FFF, 0xF900 <= r && r <= 0xFAFF,
		0x20000 <= r && r <= 0x2A6DF, 0x2A700 <= r && r <= 0x2B73F, 0x2B740 <= r && r <= 0x2B81F,
		0x2B920 <= r && r <= 0x2CEAF, 0x2F800 <= r && r <= 0x2FA1F:
		return true
	}
	return false
}

// lowercase returns the full lower case of one character, independent of its context.
// The cases missing in Go's own table were added by Unicode 16 and 17.
func lowercase(r rune) (rune, rune) {
	switch {
	case r < utf8.RuneSelf:
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r, 0
	case r == 'İ': // the only character whose lower case has two
		return 'i', '\u0307'
	case 0x10D50 <= r && r <= 0x10D65:
		return r + 0x20, 0
	case 0x16EA0 <= r && r <= 0x16EB8:
		return r + 0x1B, 0
	}
	switch r {
	case 0x1C89, 0xA7CC, 0xA7CE, 0xA7D2, 0xA7D4, 0xA7DA:
		return r + 1, 0
	case 0xA7CB:
		return 0x264, 0
	case 0xA7DC:
		return 0x19B, 0
	}
	return unicode.ToLower(r), 0
}
