package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// unicodeForm implements the four Unicode normalization forms.
//
// It uses x/text except in two cases: x/text inserts U+034F into sequences of more than
// 30 combining marks, which the standard and the library do not, and it knows characters
// that are newer than the library's tables.
type unicodeForm struct {
	form       norm.Form
	decomposed norm.Form // the form whose properties give the decomposition
	composes   bool
	compat     bool
}

func (n unicodeForm) normalize(s string) (string, bool) {
	if n.form.QuickSpanString(s) == len(s) {
		return s, true
	}
	if !n.hazardous(s) {
		return n.form.String(s), true
	}
	var b strings.Builder
	b.Grow(len(s))
	for s != "" {
		// A character that must not change starts a segment and is not part of it: no
		// such character composes with its neighbors.
		i := strings.IndexFunc(s, n.tooYoung)
		if i < 0 {
			i = len(s)
		}
		b.WriteString(n.slowly(s[:i]))
		_, size := utf8.DecodeRuneInString(s[i:])
		b.WriteString(s[i : i+size])
		s = s[i+size:]
	}
	return b.String(), true
}

// maxMarks is below the 30 marks from which x/text differs: a character may
// decompose into up to 4.
const maxMarks = 7

func (n unicodeForm) hazardous(s string) bool {
	marks := 0
	for _, r := range s {
		if r < 0x300 {
			marks = 0
			continue
		}
		if n.tooYoung(r) {
			return true
		}
		if !unicode.Is(unicode.M, r) {
			marks = 0
		} else if marks++; marks > maxMarks {
			return true
		}
	}
	return false
}

// tooYoung reports whether the library does not know the decomposition or combining class
// of a character, and so leaves it unchanged.
func (n unicodeForm) tooYoung(r rune) bool {
	if r < 0x300 {
		return false
	}
	if unicode.Is(unicode.M, r) && !unicode.Is(combiningTable, r) {
		return true
	}
	if !n.compat {
		return false
	}
	switch {
	case r == 0x32FF, 0xA7F2 <= r && r <= 0xA7F4, r == 0xAB69, 0x10780 <= r && r <= 0x107BA,
		0x1E030 <= r && r <= 0x1E06D, r == 0x1F16C, 0x1FBF0 <= r && r <= 0x1FBF9:
		return true
	}
	return false
}

// slowly normalizes as the standard describes: decompose, order the marks,
// compose.
func (n unicodeForm) slowly(s string) string {
	type char struct {
		r   rune
		ccc uint8
	}
	var chars []char
	for i, r := range s {
		add := func(r rune) {
			chars = append(chars, char{r, n.decomposed.PropertiesString(string(r)).CCC()})
		}
		switch {
		case 0xAC00 <= r && r <= 0xD7A3: // Hangul syllables are decomposed arithmetically
			index := r - 0xAC00
			add(0x1100 + index/588)
			add(0x1161 + index%588/28)
			if t := index % 28; t != 0 {
				add(0x11A7 + t)
			}
		default:
			d := n.decomposed.PropertiesString(s[i:]).Decomposition()
			if d == nil {
				add(r)
			}
			for _, r := range string(d) {
				add(r)
			}
		}
	}
	for i := 0; i < len(chars); {
		j := i + 1
		if chars[i].ccc != 0 {
			for j < len(chars) && chars[j].ccc != 0 {
				j++
			}
			slices.SortStableFunc(chars[i:j], func(a, b char) int { return int(a.ccc) - int(b.ccc) })
		}
		i = j
	}
	out := make([]rune, 0, len(chars))
	starter, lastCCC := -1, 0 // index in out; class of the last character kept after it
	for _, c := range chars {
		blocked := starter < 0 || starter < len(out)-1 && lastCCC >= int(c.ccc)
		if n.composes && !blocked {
			if r, ok := composed(out[starter], c.r); ok {
				out[starter] = r
				continue
			}
		}
		if c.ccc == 0 {
			starter = len(out)
		}
		lastCCC = int(c.ccc)
		out = append(out, c.r)
	}
	return string(out)
}

// composed returns the primary composite of two characters.
func composed(a, b rune) (rune, bool) {
	s := norm.NFC.String(string(a) + string(b))
	r, size := utf8.DecodeRuneInString(s)
	return r, size == len(s)
}
