package cache

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"unicode/utf8"
)

// EmptyPrompt is the prompt whose embedding replaces a dropped caption.
const EmptyPrompt = " "

// ReadCaption reads a caption as the Python trainers do: UTF-8, with \r\n and \r converted to \n and a byte order mark
// removed, but no trimming. It fails with ErrUTF8.
func ReadCaption(path string) (string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("cache: %w", err)
	}
	return captionText(path, raw)
}

func captionText(path string, raw []byte) (string, error) {
	if bytes.HasPrefix(raw, []byte("\xff\xfe")) || bytes.HasPrefix(raw, []byte("\xfe\xff")) {
		return "", fmt.Errorf("cache: %s: found UTF-16, expected UTF-8: %w", path, ErrUTF8)
	}
	for i := 0; i < len(raw); {
		r, n := utf8.DecodeRune(raw[i:])
		if r == utf8.RuneError && n == 1 {
			return "", fmt.Errorf("cache: %s: byte %d: found %#02x: %w", path, i+1, raw[i], ErrUTF8)
		}
		i += n
	}
	text := strings.TrimPrefix(string(raw), "\ufeff")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	return strings.ReplaceAll(text, "\r", "\n"), nil
}
