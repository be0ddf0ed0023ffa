package data

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// jsonLines has a JSON object in each line. Blank lines are skipped.
var jsonLines = fileFormat{name: FormatJSONL, endings: []string{".jsonl", ".ndjson", ".json"}, byLine: true, rows: readLines}

// byteOrderMark starts files that some editors write.
var byteOrderMark = []byte("\xef\xbb\xbf")

// readLines reads the lines of a file.
func readLines(in *input, put func(object []byte, number int) error) error {
	for number := 1; ; number++ {
		line, err := in.r.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return readError(err)
		}
		if number == 1 {
			line = bytes.TrimPrefix(line, byteOrderMark)
			if isUTF16(line) {
				return at(in.name, 1, errUTF16())
			}
		}
		if len(bytes.TrimSpace(line)) > 0 {
			if err := put(line, number); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
	}
}

// readError returns an error of reading a file.
func readError(err error) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	return fmt.Errorf("data: %w", err)
}

// isUTF16 reports whether a text begins with the byte order mark of UTF-16.
func isUTF16(head []byte) bool {
	return bytes.HasPrefix(head, []byte{0xff, 0xfe}) || bytes.HasPrefix(head, []byte{0xfe, 0xff})
}

func errUTF16() error { return problem(ErrUTF8, "the file is UTF-16, expected UTF-8") }
