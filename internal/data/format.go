package data

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// fileFormat is a format of files that hold rows. A file declares each, and rowFormats lists them.
type fileFormat struct {
	name    Format
	endings []string // of file names
	byLine  bool     // rows are numbered by their lines in errors, not counted
	textual bool     // all values are text
	// rows calls put with the JSON object of each row and its number, in order, until put fails.
	rows func(in *input, put func(object []byte, number int) error) error
}

// rowFormats lists the formats whose files hold rows.
var rowFormats = []*fileFormat{&jsonLines, &jsonArray, &commaSeparated, &tabSeparated, &parquetFile}

// otherEndings maps the endings of the other formats.
var otherEndings = map[string]Format{".txt": FormatText, ".text": FormatText, ".md": FormatText, ".safetensors": FormatTokens}

// endings lists the endings of all formats, without the endings of compressions.
func endings() (all []string) {
	for _, f := range rowFormats {
		all = append(all, f.endings...)
	}
	return append(all, ".txt", ".text", ".md", ".safetensors")
}

// rowFormat returns the format of rows with this name, or nil.
func rowFormat(name Format) *fileFormat {
	for _, f := range rowFormats {
		if f.name == name {
			return f
		}
	}
	return nil
}

// ending returns the ending of a file name in lower case, without that of its compression.
func ending(name string) string {
	e := strings.ToLower(filepath.Ext(name))
	for _, c := range compressions {
		if slices.Contains(c.endings, e) {
			return strings.ToLower(filepath.Ext(name[:len(name)-len(e)]))
		}
	}
	return e
}

// jsonStart matches the beginning of JSON objects, or of an array of objects.
var jsonStart = regexp.MustCompile(`^(\xef\xbb\xbf)?\s*(\{\s*["}]|\[\s*(\{|$))`)

// foreign maps the first bytes of files that are not read to their names.
var foreign = []struct{ magic, name string }{
	{"PK\x03\x04", "a ZIP archive"}, {"BZh", "a bzip2 file"}, {"\xfd7zXZ\x00", "an xz file"}, {"ARROW1", "an Arrow file"},
	{"\xff\xff\xff\xff", "an Arrow stream"}, {"SQLite format 3", "a SQLite database"}, {"Obj\x01", "an Avro file"}, {"ORC", "an ORC file"},
}

// sniff determines the format of a file from its contents, and from its name if the contents fit several formats.
func (in *input) sniff() (Format, error) {
	head, err := in.r.Peek(sniffed)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return "", err
	}
	end := ending(in.name)
	for _, f := range foreign {
		if strings.HasPrefix(string(head), f.magic) && otherEndings[end] != FormatText {
			return "", problem(ErrFormat, "found %s, expected one of %s", f.name, strings.Join(endings(), ", "))
		}
	}
	switch {
	case bytes.HasPrefix(head, []byte(parquetMagic)):
		return FormatParquet, nil
	case slices.Contains(parquetFile.endings, end):
		return "", problem(ErrFormat, "found no Parquet file (it begins with %q), expected it to begin with %s", shorten(string(head[:min(len(head), 8)])), parquetMagic)
	case otherEndings[end] != "":
		return otherEndings[end], nil
	case len(head) > 8 && head[8] == '{' && binary.LittleEndian.Uint64(head) < 1<<27:
		return FormatTokens, nil
	case jsonStart.Match(head) && bytes.HasPrefix(bytes.TrimSpace(bytes.TrimPrefix(head, byteOrderMark)), []byte("[")):
		return FormatJSON, nil
	case jsonStart.Match(head):
		return FormatJSONL, nil
	}
	for _, f := range rowFormats {
		if slices.Contains(f.endings, end) {
			return f.name, nil
		}
	}
	return "", problem(ErrFormat, "found the ending %q, expected one of %s, also with .gz or .zst%s (or give the format)",
		end, strings.Join(endings(), ", "), suggest.DidYouMean(end, endings()))
}

// block is a range of rows of a file that one goroutine tokenizes.
type block struct {
	rows []rawRow
	read int64 // bytes of the file up to the end of the block
}

// rawRow is a row as a JSON object.
type rawRow struct {
	object []byte
	number int
	err    error // of a row without an object
}

// blockSize is the approximate size of a block in bytes.
const blockSize = 64 << 10

// errStopped ends the reading of a file whose rows are no longer wanted.
var errStopped = errors.New("stopped")

// blocks divides the rows of a file into blocks.
func (f *fileFormat) blocks(in *input) iter.Seq2[block, error] {
	return func(yield func(block, error) bool) {
		var b block
		size := 0
		flush := func() bool {
			b.read = in.progress()
			next := b
			b, size = block{}, 0
			return len(next.rows) == 0 || yield(next, nil)
		}
		last := 0
		add := func(row rawRow) error {
			b.rows, last = append(b.rows, row), row.number
			if size += len(row.object) + 1; size >= blockSize && !flush() {
				return errStopped
			}
			return nil
		}
		in.bad = func(number int, err error) error { return add(rawRow{number: number, err: err}) }
		err := f.rows(in, func(object []byte, number int) error { return add(rawRow{object: object, number: number}) })
		if errors.Is(err, errStopped) || !flush() || err == nil {
			return
		}
		if e, ok := errors.AsType[*Error](err); ok && e.Place == "" && last > 0 && f != &jsonArray { // whose errors name the element
			err = problem(e.Kind, "after %s %d: %s", f.unit(), last, e.Problem)
		}
		yield(block{}, at(in.name, 0, err))
	}
}

// place is the position of a row in a file.
type place struct {
	file   string
	number int  // of the line or the row; 0 if unknown
	byLine bool // number counts lines
}

// String returns file:line, or file: row number.
func (p place) String() string {
	switch {
	case p.number == 0:
		return p.file
	case p.byLine:
		return fmt.Sprintf("%s:%d", p.file, p.number)
	}
	return fmt.Sprintf("%s: row %d", p.file, p.number)
}

// wrap adds the place to an error that has none.
func (p place) wrap(err error) error { return at(p.String(), 0, err) }

// encodedRow is a tokenized row of a block.
type encodedRow struct {
	place  place
	kind   kind
	read   *columns
	sample sample
	err    error // that the row is refused with
}

// rows reads a file of rows.
func (l *loading) rows(ctx context.Context, in *input, f *fileFormat) error {
	type tokenized struct {
		rows []encodedRow
		read int64
	}
	began := l.progress.Bytes
	encode := func(b block) (tokenized, error) {
		t := tokenized{read: b.read}
		for _, raw := range b.rows {
			p := place{in.name, raw.number, f.byLine}
			row, err := encodedRow{place: p}, raw.err
			if err == nil {
				row, err = l.encoder.row(raw.object, f.textual, p)
			}
			if err != nil {
				row.err = p.wrap(err)
			}
			t.rows = append(t.rows, row)
			if err != nil && l.encoder.Refused == nil {
				break
			}
		}
		return t, nil
	}
	source := Source{Name: in.name, Format: f.name}
	var first encodedRow
	collect := func(t tokenized) error {
		for _, row := range t.rows {
			if first.kind == "" && row.err == nil {
				first = row
			}
			switch {
			case row.err != nil:
			case row.kind != first.kind:
				row.err = row.place.wrap(problem(ErrMixed, "found %s, expected %s as in %s %d", row.kind, first.kind, f.unit(), first.place.number))
			case !l.fits(row.sample):
				row.err = row.place.wrap(problem(ErrMixed, "found %s, expected rows of %d texts as in the files before", row.kind, l.set.texts))
			}
			if row.err != nil {
				if err := l.refuse(row.err); err != nil {
					return err
				}
				continue
			}
			source.add(row)
			if err := l.add(row.sample); err != nil {
				return err
			}
			if l.full() {
				return errStopped
			}
		}
		l.progress.Bytes = began + t.read
		l.report()
		return nil
	}
	err := inOrder(ctx, l.encoder.Workers, f.blocks(in), encode, collect)
	l.set.sources = append(l.set.sources, source)
	if errors.Is(err, errStopped) {
		return nil
	}
	return err
}

// refuse reports an error to the caller, and returns it if that does not collect errors.
func (l *loading) refuse(err error) error {
	if l.encoder.Refused == nil {
		return err
	}
	l.encoder.Refused(err)
	return nil
}

// full reports whether the dataset has all rows that the caller wants.
func (l *loading) full() bool {
	return l.encoder.MaxRows > 0 && l.set.stats.Rows >= l.encoder.MaxRows
}

// row parses and tokenizes a row.
func (e encoder) row(object []byte, textual bool, p place) (encodedRow, error) {
	r, err := e.parse(object, textual)
	if err != nil {
		return encodedRow{place: p}, err
	}
	if r.label != nil {
		r.label.place = p
	}
	row := encodedRow{place: p, kind: r.kind, read: r.read}
	if e.ParseOnly {
		row.sample = parsed(r)
		return row, nil
	}
	row.sample, err = r.sample(e)
	return row, err
}

// parsed returns a placeholder for a row that is not tokenized.
func parsed(r record) sample {
	if r.label == nil {
		return sample{ids: []int32{0, 0}, loss: []Span{{0, 2}}}
	}
	return sample{texts: [][]int32{{0}}, label: r.label}
}

// unit returns the unit of the numbers of rows: line or row.
func (f *fileFormat) unit() string {
	if f.byLine {
		return "line"
	}
	return "row"
}

// checkUTF8 returns an error if a text of a file is not UTF-8.
func checkUTF8(text []byte) error {
	if utf8.Valid(text) {
		return nil
	}
	at := validPrefix(text)
	hint := ""
	if b := text[at]; b >= 0xa0 { // letters of Latin-1
		hint = fmt.Sprintf(" (0x%x is %q in Latin-1: convert the file with iconv -f latin1 -t utf-8)", b, rune(b))
	}
	return problem(ErrUTF8, "byte %d is not UTF-8%s", at+1, hint)
}
