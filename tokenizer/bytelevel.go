package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// The byte-level alphabet represents each byte as a printable character: printable
// Latin-1 bytes as themselves, the others as U+0100 and following, in order.
var (
	byteChars = func() (chars [256]rune) {
		next := rune(256)
		for b := range chars {
			if '!' <= b && b <= '~' || 0xA1 <= b && b <= 0xAC || 0xAE <= b {
				chars[b] = rune(b)
			} else {
				chars[b] = next
				next++
			}
		}
		return chars
	}()
	// charBytes is the inverse of byteChars, noID for characters that represent
	// no byte.
	charBytes = func() (bytes [0x144]int16) {
		for i := range bytes {
			bytes[i] = noID
		}
		for b, r := range byteChars {
			bytes[r] = int16(b)
		}
		return bytes
	}()
)

func appendByteChars(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		dst = utf8.AppendRune(dst, byteChars[s[i]])
	}
	return dst
}

// bytesOf inverts appendByteChars; ok is false for text outside the alphabet.
func bytesOf(dst []byte, s string) (out []byte, ok bool) {
	n := len(dst)
	for _, r := range s {
		if int(r) >= len(charBytes) || charBytes[r] == noID {
			return dst[:n], false
		}
		dst = append(dst, byte(charBytes[r]))
	}
	return dst, true
}

// byteLevel is the ByteLevel pre-tokenizer: it splits text into words as GPT-2 does and
// converts them to the byte-level alphabet.
type byteLevel struct {
	prefixSpace bool
	words       bool
}

func (p byteLevel) split(in []piece) []piece {
	if p.prefixSpace {
		in = append([]piece(nil), in...)
		for i := range in {
			if in[i].id == noID && !strings.HasPrefix(in[i].text, " ") {
				in[i].text = " " + in[i].text
			}
		}
	}
	if p.words {
		in = splitter{scanner(scanGPT2), isolated}.split(in)
	}
	// All pieces share one string.
	size := 0
	for _, pc := range in {
		size += len(pc.text)
	}
	buf := make([]byte, 0, size+size/2)
	ends := make([]int, len(in))
	for i, pc := range in {
		if pc.id == noID {
			buf = appendByteChars(buf, pc.text)
		}
		ends[i] = len(buf)
	}
	text := string(buf)
	out := make([]piece, len(in))
	start := 0
	for i, pc := range in {
		out[i] = pc
		if pc.id == noID {
			out[i].text = text[start:ends[i]]
		}
		start = ends[i]
	}
	return out
}

// byteLevelNormalizer converts the whole text to the byte-level alphabet.
type byteLevelNormalizer struct{}

func (byteLevelNormalizer) normalize(s string) (string, bool) {
	return string(appendByteChars(nil, s)), true
}
