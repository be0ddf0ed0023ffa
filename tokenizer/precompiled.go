package tokenizer

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/graphemes"
)

// charsmap is SentencePiece's compiled table of replacements. It is a double-array trie
// (darts) over the text to replace; its values are offsets into a list of NUL-terminated
// replacements.
type charsmap struct {
	trie         []uint32
	replacements string
}

func readCharsmap(data []byte) (normalizer, error) {
	if len(data) < 4 {
		return nil, malformed("normalizer Precompiled: charsmap of %d bytes is too short", len(data))
	}
	size := binary.LittleEndian.Uint32(data)
	data = data[4:]
	if size%4 != 0 || uint64(size) > uint64(len(data)) {
		return nil, malformed("normalizer Precompiled: trie of %d bytes in a charsmap of %d", size, len(data))
	}
	m := &charsmap{trie: make([]uint32, size/4), replacements: string(data[size:])}
	for i := range m.trie {
		m.trie[i] = binary.LittleEndian.Uint32(data[i*4:])
	}
	if !utf8.ValidString(m.replacements) {
		return nil, malformed("normalizer Precompiled: replacements are not UTF-8")
	}
	return m, nil
}

// normalize replaces short grapheme clusters as a whole and others character by character,
// as the library does (SentencePiece itself has no concept of clusters).
func (m *charsmap) normalize(s string) (string, bool) {
	var b strings.Builder
	b.Grow(len(s))
	for it := graphemes.FromString(s); it.Next(); {
		cluster := it.Value()
		if len(cluster) < 6 {
			if repl, ok := m.lookup(cluster); ok {
				b.WriteString(repl)
				continue
			}
		}
		for i, r := range cluster {
			char := cluster[i : i+utf8.RuneLen(r)]
			if repl, ok := m.lookup(char); ok {
				b.WriteString(repl)
			} else {
				b.WriteString(char)
			}
		}
	}
	return b.String(), true
}

// lookup returns the replacement of the shortest prefix of key in the trie.
func (m *charsmap) lookup(key string) (string, bool) {
	if len(m.trie) == 0 {
		return "", false
	}
	pos := dartsOffset(m.trie[0])
	for i := 0; i < len(key) && key[i] != 0; i++ {
		pos ^= uint32(key[i])
		if uint64(pos) >= uint64(len(m.trie)) {
			return "", false
		}
		unit := m.trie[pos]
		if unit&(1<<31|0xFF) != uint32(key[i]) {
			return "", false
		}
		pos ^= dartsOffset(unit)
		if unit>>8&1 == 0 {
			continue
		}
		if uint64(pos) >= uint64(len(m.trie)) {
			return "", false
		}
		start := m.trie[pos] &^ (1 << 31)
		if uint64(start) > uint64(len(m.replacements)) {
			return "", false
		}
		repl, _, _ := strings.Cut(m.replacements[start:], "\x00")
		return repl, true
	}
	return "", false
}

func dartsOffset(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }
