package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// blankJoiner inserts spaces between tokens. It is the default decoder.
type blankJoiner struct{}

func (blankJoiner) fuses() bool { return false }

func (blankJoiner) open(next sink, fused bool) sink {
	return &each{next: next, f: func(text string, first bool) string {
		if first {
			return text
		}
		return " " + text
	}}
}

// wordPieceDecoder joins the pieces of words and inserts spaces between words.
type wordPieceDecoder struct {
	prefix  string
	cleanup bool
}

func (wordPieceDecoder) fuses() bool { return false }

func (d wordPieceDecoder) open(next sink, fused bool) sink {
	return whole(&each{next: next, f: func(text string, first bool) string {
		if !first {
			if rest, ok := strings.CutPrefix(text, d.prefix); ok {
				text = rest
			} else {
				text = " " + text
			}
		}
		if d.cleanup {
			text = wordPieceCleanup.Replace(text)
		}
		return text
	}}, fused)
}

// cleanups are replacements that are applied in order.
type cleanups [][2]string

func (c cleanups) Replace(s string) string {
	for _, r := range c {
		s = strings.ReplaceAll(s, r[0], r[1])
	}
	return s
}

var (
	// wordPieceCleanup lists the replacements that the library's WordPiece decoder
	// applies to each token.
	wordPieceCleanup = cleanups{
		{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"},
		{" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
	}
	// textCleanup lists the replacements that transformers' clean_up_tokenization_spaces
	// applies to the whole text.
	textCleanup = cleanups{
		{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"},
		{" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
	}
)

// metaspaceDecoder replaces visible spaces with spaces; the space of the first token
// is dropped.
type metaspaceDecoder struct {
	replacement string
	prepended   bool
}

func (metaspaceDecoder) fuses() bool { return false }

func (d metaspaceDecoder) open(next sink, fused bool) sink {
	return whole(&each{next: next, f: func(text string, first bool) string {
		if first && d.prepended {
			return strings.ReplaceAll(text, d.replacement, "")
		}
		return strings.ReplaceAll(text, d.replacement, " ")
	}}, fused)
}

// suffixDecoder replaces the end-of-word suffix with a space, except at the
// end.
type suffixDecoder string

func (suffixDecoder) fuses() bool { return false }

func (d suffixDecoder) open(next sink, fused bool) sink {
	return whole(&suffixSink{next: next, suffix: string(d)}, fused)
}

type suffixSink struct {
	next   sink
	suffix string
	held   string // the last token, which may be the final one
	any    bool
}

func (s *suffixSink) token(text string) {
	if s.any {
		s.next.token(strings.ReplaceAll(s.held, s.suffix, " "))
	}
	s.held, s.any = text, true
}

func (s *suffixSink) end() {
	if s.any {
		s.next.token(strings.ReplaceAll(s.held, s.suffix, ""))
	}
	s.next.end()
}

// ctc drops repeated tokens and the pad token.
type ctc struct {
	pad, delimiter string
	cleanup        bool
}

func (ctc) fuses() bool { return false }

func (d ctc) open(next sink, fused bool) sink {
	return whole(&ctcSink{ctc: d, next: next}, fused)
}

type ctcSink struct {
	ctc
	next sink
	last string
	any  bool
}

func (s *ctcSink) token(text string) {
	if s.any && text == s.last {
		return
	}
	s.last, s.any = text, true
	text = strings.ReplaceAll(text, s.pad, "")
	if s.cleanup {
		text = strings.ReplaceAll(wordPieceCleanup.Replace(text), s.delimiter, " ")
	}
	if text != "" {
		s.next.token(text)
	}
}

func (s *ctcSink) end() { s.next.end() }

// fuser joins all tokens into one.
type fuser struct{}

func (fuser) fuses() bool                 { return true }
func (fuser) open(next sink, _ bool) sink { return next }

// stripDecoder removes a character at the ends of a token, up to start and stop
// times.
type stripDecoder struct {
	content     rune
	start, stop int
}

func (stripDecoder) fuses() bool { return false }

func (d stripDecoder) open(next sink, fused bool) sink {
	if fused && d.stop == 0 {
		return &stripSink{stripDecoder: d, next: next}
	}
	return whole(&each{next: next, f: func(text string, _ bool) string {
		for range d.start {
			r, size := utf8.DecodeRuneInString(text)
			if size == 0 || r != d.content {
				break
			}
			text = text[size:]
		}
		for range d.stop {
			r, size := utf8.DecodeLastRuneInString(text)
			if size == 0 || r != d.content {
				break
			}
			text = text[:len(text)-size]
		}
		return text
	}}, fused)
}

// stripSink strips the start of a fused token as its fragments arrive.
type stripSink struct {
	stripDecoder
	next sink
}

func (s *stripSink) token(text string) {
	for s.start > 0 && text != "" {
		r, size := utf8.DecodeRuneInString(text)
		if r != s.content {
			s.start = 0
			break
		}
		text = text[size:]
		s.start--
	}
	s.next.token(text)
}

func (s *stripSink) end() { s.next.end() }

// replaceDecoder replaces the matches of a pattern.
type replaceDecoder replacer

func (replaceDecoder) fuses() bool { return false }

func (d replaceDecoder) open(next sink, fused bool) sink {
	if l, ok := d.pattern.(literal); ok && fused && l != "" {
		return &replaceSink{next: next, old: string(l), new: d.content}
	}
	return whole(&each{next: next, f: func(text string, _ bool) string {
		out, _ := replacer(d).normalize(text)
		return out
	}}, fused)
}

// replaceSink replaces a string in a fused token as its fragments arrive.
type replaceSink struct {
	next     sink
	old, new string
	held     string // a prefix of old
}

func (s *replaceSink) token(text string) {
	text = s.held + text
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, s.old)
		if !found {
			break
		}
		b.WriteString(before)
		b.WriteString(s.new)
		text = after
	}
	keep := min(len(s.old)-1, len(text))
	for !strings.HasPrefix(s.old, text[len(text)-keep:]) {
		keep--
	}
	s.held = text[len(text)-keep:]
	b.WriteString(text[:len(text)-keep])
	s.next.token(b.String())
}

func (s *replaceSink) end() {
	s.next.token(s.held)
	s.next.end()
}
