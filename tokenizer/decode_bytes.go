package tokenizer

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// byteLevelDecoder inverts the byte-level alphabet. Invalid UTF-8 becomes U+FFFD.
type byteLevelDecoder struct{}

func (byteLevelDecoder) fuses() bool { return true }

func (byteLevelDecoder) open(next sink, fused bool) sink {
	return whole(&byteSink{next: next}, fused)
}

type byteSink struct {
	next sink
	held []byte // an incomplete character
}

func (s *byteSink) token(text string) {
	buf, ok := bytesOf(s.held, text)
	if !ok {
		buf = append(buf, text...)
	}
	var out []byte
	for len(buf) > 0 {
		n, valid := nextChar(buf)
		if n == 0 {
			break
		}
		if valid {
			out = append(out, buf[:n]...)
		} else {
			out = utf8.AppendRune(out, utf8.RuneError)
		}
		buf = buf[n:]
	}
	s.held = append(s.held[:0:0], buf...)
	if len(out) > 0 {
		s.next.token(string(out))
	}
}

func (s *byteSink) end() {
	if len(s.held) > 0 {
		s.next.token(string(utf8.RuneError))
	}
	s.next.end()
}

// nextChar returns the length of the first character of b. Invalid bytes that are
// replaced by one U+FFFD count as a character: the longest prefix of a character whose
// next byte is invalid. n is 0 if b ends within a character.
func nextChar(b []byte) (n int, valid bool) {
	lead := b[0]
	lo, hi := byte(0x80), byte(0xBF) // of the second byte
	switch {
	case lead < 0x80:
		return 1, true
	case 0xC2 <= lead && lead <= 0xDF:
		n = 2
	case 0xE0 <= lead && lead <= 0xEF:
		n = 3
		if lead == 0xE0 {
			lo = 0xA0
		} else if lead == 0xED {
			hi = 0x9F
		}
	case 0xF0 <= lead && lead <= 0xF4:
		n = 4
		if lead == 0xF0 {
			lo = 0x90
		} else if lead == 0xF4 {
			hi = 0x8F
		}
	default:
		return 1, false
	}
	for i := 1; i < n; i++ {
		if i == len(b) {
			return 0, false
		}
		if b[i] < lo || b[i] > hi {
			return i, false
		}
		lo, hi = 0x80, 0xBF
	}
	return n, true
}

// byteFallback converts runs of tokens like <0x61> to text. A run that is not valid UTF-8 as
// a whole becomes one U+FFFD per token, so a run is held back until it ends.
type byteFallback struct{}

func (byteFallback) fuses() bool { return false }

func (byteFallback) open(next sink, fused bool) sink {
	return whole(&byteFallbackSink{next: next}, fused)
}

type byteFallbackSink struct {
	next sink
	run  []byte
}

func (s *byteFallbackSink) token(text string) {
	if b, ok := fallbackByte(text); ok {
		s.run = append(s.run, b)
		return
	}
	s.flush()
	s.next.token(text)
}

// fallbackByte returns the byte encoded by a token like <0x61>.
func fallbackByte(token string) (b byte, ok bool) {
	if len(token) != 6 || !strings.HasPrefix(token, "<0x") || token[5] != '>' {
		return 0, false
	}
	v, err := strconv.ParseUint(token[3:5], 16, 8)
	return byte(v), err == nil
}

func (s *byteFallbackSink) flush() {
	switch {
	case len(s.run) == 0:
		return
	case utf8.Valid(s.run):
		s.next.token(string(s.run))
	default:
		for range s.run {
			s.next.token(string(utf8.RuneError))
		}
	}
	s.run = s.run[:0]
}

func (s *byteFallbackSink) end() {
	s.flush()
	s.next.end()
}
