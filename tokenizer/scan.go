package tokenizer

import "unicode/utf8"

// scanners maps the split patterns of widely used models to functions that return the end
// of the match at i. All of them end in \s+(?!\S)|\s+: a run of white space leaves its
// last character to the next word.
var scanners = map[string]scanner{
	gpt2Pattern: scanGPT2,
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`: scanLlama3(3),
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`:      scanLlama3(1),
}

// gpt2Pattern is also the pattern of the ByteLevel pre-tokenizer.
const gpt2Pattern = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

func scanGPT2(s string, i int) int {
	r, size := utf8.DecodeRuneInString(s[i:])
	if r == '\'' {
		if n := contraction(s[i+1:], false); n > 0 {
			return i + 1 + n
		}
	}
	word := i
	if r == ' ' {
		word = i + 1
		r, size = utf8.DecodeRuneInString(s[word:])
	}
	switch {
	case size == 0: // the space was the last character
	case isLetter(r):
		return endOf(isLetter, s, word+size)
	case isNumber(r):
		return endOf(isNumber, s, word+size)
	case !isSpace(r):
		return endOf(isSymbol, s, word+size)
	}
	return scanSpace(s, i)
}

// scanLlama3 returns a scanner for the pattern of Llama 3 (digits = 3) or Qwen
// 2 (digits = 1).
func scanLlama3(digits int) scanner {
	return func(s string, i int) int {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == '\'' {
			if n := contraction(s[i+1:], true); n > 0 {
				return i + 1 + n
			}
		}
		switch {
		case isLetter(r):
			return endOf(isLetter, s, i+size)
		case isNumber(r):
			end := i + size
			for n := 1; n < digits; n++ {
				r, size := utf8.DecodeRuneInString(s[end:])
				if size == 0 || !isNumber(r) {
					break
				}
				end += size
			}
			return end
		}
		// r is a space or a symbol: it may precede a word, and a space may precede a
		// run of symbols.
		next, nextSize := utf8.DecodeRuneInString(s[i+size:])
		if nextSize > 0 && r != '\r' && r != '\n' && isLetter(next) {
			return endOf(isLetter, s, i+size+nextSize)
		}
		if isSymbol(r) || r == ' ' && nextSize > 0 && isSymbol(next) {
			end := endOf(isSymbol, s, i+size)
			for end < len(s) && (s[end] == '\r' || s[end] == '\n') {
				end++
			}
			return end
		}
		// White space: up to and including the last line break, if any.
		end, lineBreak := i, -1
		for end < len(s) {
			r, size := utf8.DecodeRuneInString(s[end:])
			if !isSpace(r) {
				break
			}
			end += size
			if r == '\r' || r == '\n' {
				lineBreak = end
			}
		}
		if lineBreak >= 0 {
			return lineBreak
		}
		return scanSpace(s, i)
	}
}

// scanSpace matches \s+(?!\S)|\s+ at i, which must be white space.
func scanSpace(s string, i int) int {
	last, end := i, i // start of the last space of the run; end of the run
	for end < len(s) {
		r, size := utf8.DecodeRuneInString(s[end:])
		if !isSpace(r) {
			break
		}
		last, end = end, end+size
	}
	if end == len(s) || last == i {
		return end
	}
	return last
}

func endOf(class func(rune) bool, s string, i int) int {
	for i < len(s) {
		r, size := utf8.DecodeRuneInString(s[i:])
		if !class(r) {
			break
		}
		i += size
	}
	return i
}

// contraction returns the length of the match of s|t|re|ve|m|ll|d at the start of s.
// With ignoreCase, ſ counts as an s.
func contraction(s string, ignoreCase bool) int {
	at := func(i int) byte {
		if i >= len(s) {
			return 0
		}
		if c := s[i]; ignoreCase && 'A' <= c && c <= 'Z' {
			return c + 'a' - 'A'
		}
		return s[i]
	}
	switch at(0) {
	case 's', 't', 'm', 'd':
		return 1
	case 'r', 'v':
		if at(1) == 'e' {
			return 2
		}
	case 'l':
		if at(1) == 'l' {
			return 2
		}
	case "ſ"[0]:
		if ignoreCase && at(1) == "ſ"[1] {
			return len("ſ")
		}
	}
	return 0
}
