package data

import (
	"encoding/json"
	"errors"
	"io"
)

// jsonArray is a JSON array of objects.
var jsonArray = fileFormat{name: FormatJSON, rows: readArray}

// readArray reads the elements of an array, one at a time.
func readArray(in *input, put func(object []byte, number int) error) error {
	if mark, _ := in.r.Peek(len(byteOrderMark)); string(mark) == string(byteOrderMark) {
		_, _ = in.r.Discard(len(byteOrderMark)) // they were peeked at
	}
	dec := json.NewDecoder(in.r)
	open, err := dec.Token()
	if err != nil {
		return arrayError(dec, 0, err)
	}
	if open != json.Delim('[') {
		return problem(ErrFormat, "found no array at byte %d, expected [ and objects, or one JSON object per line (format: jsonl)", dec.InputOffset())
	}
	number := 0
	for dec.More() {
		var element json.RawMessage
		if err := dec.Decode(&element); err != nil {
			return arrayError(dec, number+1, err)
		}
		number++
		if err := put(element, number); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return arrayError(dec, number+1, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return problem(ErrFormat, "found more after the array, at byte %d", dec.InputOffset()+1)
	}
	return nil
}

// arrayError returns the error of an element of an array.
func arrayError(dec *json.Decoder, number int, err error) error {
	syntax, ok := errors.AsType[*json.SyntaxError](err)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return problem(ErrFormat, "not valid JSON: it ends within element %d of the array: the file is truncated", number)
	case ok:
		return problem(ErrFormat, "not valid JSON in element %d, before byte %d: %v", number, max(syntax.Offset, dec.InputOffset()), syntax)
	}
	return readError(err)
}
