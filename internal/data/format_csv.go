package data

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Tables of text with a header (RFC 4180). The separator is the one of the header: a comma, a tab, a semicolon or a
// vertical bar. An empty cell is null.
var (
	commaSeparated = fileFormat{name: FormatCSV, endings: []string{".csv"}, byLine: true, textual: true, rows: func(in *input, put func([]byte, int) error) error {
		return readTable(in, ",;\t|", put)
	}}
	tabSeparated = fileFormat{name: FormatTSV, endings: []string{".tsv", ".tab"}, byLine: true, textual: true, rows: func(in *input, put func([]byte, int) error) error {
		return readTable(in, "\t,;|", put)
	}}
)

// maxHeader bounds the size of a header in bytes.
const maxHeader = 1 << 20

// readTable reads a table whose separator is one of several, the preferred one first.
func readTable(in *input, separators string, put func(object []byte, number int) error) error {
	in.r = bufio.NewReaderSize(in.r, maxHeader)
	head, err := in.r.Peek(maxHeader)
	if err != nil && !errors.Is(err, io.EOF) {
		return readError(err)
	}
	if isUTF16(head) {
		return at(in.name, 1, errUTF16())
	}
	if bytes.HasPrefix(head, byteOrderMark) {
		_, _ = in.r.Discard(len(byteOrderMark)) // they were peeked at
		head = head[len(byteOrderMark):]
	}
	separator := separatorOf(head, separators)
	t := csv.NewReader(bufio.NewReaderSize(&returns{r: in.r}, blockSize))
	t.Comma, t.FieldsPerRecord, t.ReuseRecord = separator, -1, true
	header, err := t.Read()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if bad, ok := errors.AsType[*csv.ParseError](err); ok {
		return at(in.name, bad.StartLine, cellError(bad))
	}
	if err != nil {
		return readError(err)
	}
	header = slices.Clone(header)
	names, err := columnNames(header)
	if err != nil {
		return at(in.name, 1, err)
	}
	var line []byte
	for {
		record, err := t.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if bad, ok := errors.AsType[*csv.ParseError](err); ok {
			if err := in.refuse(bad.StartLine, cellError(bad)); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return readError(err)
		}
		number, _ := t.FieldPos(0)
		if len(record) != len(names) {
			err = ragged(record, names, separator, separators)
		} else {
			line, err = tableRow(line[:0], record, header, names)
		}
		if err != nil {
			err = in.refuse(number, err)
		} else {
			err = put(slices.Clone(line), number)
		}
		if err != nil {
			return err
		}
	}
}

// tableRow appends the JSON object of a row that has as many cells as the header.
func tableRow(line []byte, record, header []string, names [][]byte) ([]byte, error) {
	line = append(line, '{')
	for i, cell := range record {
		if i > 0 {
			line = append(line, ',')
		}
		cell = restored(cell)
		if err := checkUTF8([]byte(cell)); err != nil {
			return line, within(fmt.Sprintf("column %q", header[i]), err)
		}
		line = append(append(line, names[i]...), ':')
		if cell == "" {
			line = append(line, "null"...)
		} else {
			line = append(line, quoted(cell)...)
		}
	}
	return append(line, '}'), nil
}

// quoted returns a text as JSON.
func quoted(text string) []byte {
	raw, err := json.Marshal(text)
	if err != nil { // which text never causes
		panic(err)
	}
	return raw
}

// separatorOf returns the separator that gives a header the most columns.
func separatorOf(head []byte, separators string) rune {
	best, most := rune(separators[0]), 0
	for _, s := range separators {
		t := csv.NewReader(bytes.NewReader(head))
		t.Comma = s
		if header, err := t.Read(); err == nil && len(header) > most {
			best, most = s, len(header)
		}
	}
	return best
}

// columnNames returns the names in a header as JSON keys, and cleans the header.
func columnNames(header []string) ([][]byte, error) {
	var names [][]byte
	for i, name := range header {
		name = strings.TrimSpace(restored(name))
		header[i] = name
		_, number := strconv.ParseFloat(name, 64)
		switch {
		case !utf8.ValidString(name):
			return nil, checkUTF8([]byte(name))
		case len(name) > 100 || number == nil || strings.ContainsAny(name, "\n"):
			return nil, problem(ErrKeys, "found %q as the name of column %d, expected a line of column names, such as prompt,completion, before the rows", shorten(name), i+1)
		case name != "" && slices.Contains(header[:i], name):
			return nil, problem(ErrKeys, "found the column %q twice", name)
		}
		if name == "" { // as pandas writes the index of its rows
			name = fmt.Sprintf("column %d", i+1)
		}
		names = append(names, quoted(name))
	}
	return names, nil
}

// ragged returns the error for a row with another number of cells than the header.
func ragged(record []string, names [][]byte, separator rune, separators string) error {
	hint := ""
	for _, s := range separators {
		if len(record) == 1 && s != separator && strings.Count(record[0], string(s)) == len(names)-1 {
			hint = fmt.Sprintf(" (%q separates the columns of the header, and %q those of this row)", separator, s)
		}
	}
	if len(record) > len(names) {
		hint = fmt.Sprintf(": put cells that contain %q in double quotes", separator)
	}
	return problem(ErrFormat, "found %d columns, expected %d as in the header%s", len(record), len(names), hint)
}

// cellError returns the error of a row that is not valid CSV.
func cellError(bad *csv.ParseError) error {
	switch {
	case errors.Is(bad.Err, csv.ErrBareQuote):
		return problem(ErrFormat, `byte %d: found a quote within a cell, expected the cell in quotes and its own doubled: "say ""yes"""`, bad.Column)
	case errors.Is(bad.Err, csv.ErrQuote) && bad.Line > bad.StartLine:
		return problem(ErrFormat, "found a cell in quotes that does not end properly (line %d)", bad.Line)
	case errors.Is(bad.Err, csv.ErrQuote):
		return problem(ErrFormat, "byte %d: found text after the quote that ends a cell, or no such quote", bad.Column)
	}
	return problem(ErrFormat, "not valid CSV: %v", bad.Err)
}

// heldReturn replaces a carriage return within quotes, which package csv would remove before a line feed. No UTF-8
// text contains it.
const heldReturn = 0xfe

// returns is a reader that replaces carriage returns within quotes by heldReturn.
type returns struct {
	r      io.Reader
	quoted bool
}

func (t *returns) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	for i, c := range p[:n] {
		switch {
		case c == '"':
			t.quoted = !t.quoted
		case c == '\r' && t.quoted:
			p[i] = heldReturn
		case c == heldReturn: // not UTF-8: keep it an error
			p[i] = 0xff
		}
	}
	return n, err
}

// restored returns a cell with its carriage returns.
func restored(cell string) string {
	if strings.IndexByte(cell, heldReturn) < 0 {
		return cell
	}
	return string(bytes.ReplaceAll([]byte(cell), []byte{heldReturn}, []byte{'\r'}))
}
