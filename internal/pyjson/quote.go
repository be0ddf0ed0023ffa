// Package pyjson writes JSON strings byte for byte like Python's json.dumps,
// because adapter configurations and chat templates are compared with Python's.
package pyjson

import (
	"fmt"
	"unicode/utf8"
)

// AppendQuoted appends s in quotes. If ascii is set, it escapes everything
// except printable ASCII, using surrogate pairs if needed (ensure_ascii,
// Python's default). Otherwise it escapes only the characters that JSON
// requires to be escaped.
func AppendQuoted(b []byte, s string, ascii bool) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r == '\f':
			b = append(b, `\f`...)
		case r == '\b':
			b = append(b, `\b`...)
		case r < ' ' || ascii && 0x7F <= r && r < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, r)
		case ascii && r >= 0x10000:
			r -= 0x10000
			b = fmt.Appendf(b, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
