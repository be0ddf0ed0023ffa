package data

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"strings"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// formats maps file extensions to formats.
var formats = map[string]Format{
	".jsonl": FormatJSONL, ".ndjson": FormatJSONL, ".json": FormatJSONL,
	".txt": FormatText, ".text": FormatText, ".md": FormatText,
	".safetensors": FormatTokens,
}

var endings = []string{".jsonl", ".ndjson", ".json", ".txt", ".text", ".md", ".safetensors"}

// Load reads and tokenizes the files, in order, as one dataset. Errors name file and line, and do not depend on the
// number of workers. When ctx is cancelled, Load returns its error.
func Load(ctx context.Context, files []string, o Options) (*Dataset, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, problem(ErrEmpty, "no data files")
	}
	l := loading{encoder: encoder{o}, set: newDataset()}
	ends := make([]int64, len(files))
	for i, file := range files {
		info, err := l.encoder.stat(file)
		if err != nil {
			return nil, fmt.Errorf("data: %w", err)
		}
		l.progress.Size += info.Size()
		ends[i] = l.progress.Size
	}
	for i, file := range files {
		if err := l.file(ctx, file); err != nil {
			return nil, err
		}
		l.set.stats.Files++
		l.progress.Bytes = ends[i]
		l.report()
	}
	if err := l.check(files); err != nil || l.encoder.Rows != LabelledRows {
		return l.set, err
	}
	l.set.labels, err = convertLabels(l.labels, l.encoder.Options)
	return l.set, err
}

// loading holds the state of one Load.
type loading struct {
	encoder  encoder
	set      *Dataset
	labels   []*label // labels of the rows of set
	progress Progress
}

// file reads one file.
func (l *loading) file(ctx context.Context, file string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if l.set.batch > 0 {
		return at(file, 0, problem(ErrMixed, "found another file beside one of recorded batches, expected that one alone"))
	}
	l.progress.File = file
	format := l.encoder.Format
	if format == FormatAuto {
		ending := strings.ToLower(filepath.Ext(file))
		if format = formats[ending]; format == "" {
			return at(file, 0, problem(ErrFormat, "found the ending %q, expected one of %s%s (or give the format)",
				ending, strings.Join(endings, ", "), suggest.DidYouMean(ending, endings)))
		}
	}
	if format != FormatJSONL && l.encoder.Rows != LanguageRows {
		return at(file, 0, l.refuseFormat(format))
	}
	switch format {
	case FormatJSONL:
		return l.jsonl(ctx, file)
	case FormatText:
		return l.text(ctx, file)
	}
	return l.tokens(file)
}

// check returns an error if the dataset is empty.
func (l *loading) check(files []string) error {
	s := l.set.stats
	if s.Rows > 0 {
		return nil
	}
	where := files[0]
	if len(files) > 1 {
		where = fmt.Sprintf("%s and %d more", where, len(files)-1)
	}
	switch {
	case s.Dropped > 0:
		return at(where, 0, problem(ErrEmpty, "all %d rows were left out: longer than max_length %d", s.Dropped, l.encoder.MaxLength))
	case s.Empty > 0:
		return at(where, 0, problem(ErrEmpty, "all %d texts are too short to predict a token", s.Empty))
	}
	return at(where, 0, problem(ErrEmpty, "no rows"))
}

// add adds a tokenized record to the dataset or to the counts.
func (l *loading) add(s sample) {
	stats := &l.set.stats
	switch {
	case s.dropped:
		stats.Dropped++
		return
	case s.empty:
		stats.Empty++
		return
	case s.truncated:
		stats.Truncated++
	}
	switch {
	case s.label != nil:
		l.set.appendTyped(s.texts[0], s.types)
		l.labels = append(l.labels, s.label)
	case s.answers != nil:
		l.set.appendPreference(s.texts, s.answers)
	case s.texts != nil:
		l.set.appendWhole(s.texts)
	default:
		l.set.append(s.ids, s.loss)
	}
}

// fits reports whether a row has the same number of texts as earlier rows.
func (l *loading) fits(s sample) bool {
	return s.texts == nil || l.set.Len() == 0 || len(s.texts) == l.set.texts
}

// report reports the progress to the caller.
func (l *loading) report() {
	l.progress.Rows, l.progress.Tokens = l.set.stats.Rows, l.set.stats.Tokens
	if l.encoder.Progress != nil {
		l.encoder.Progress(l.progress)
	}
}

// block is a range of lines of a file that one goroutine tokenizes.
type block struct {
	lines [][]byte
	first int // number of the first line
	bytes int
}

// line is a tokenized record of a block.
type line struct {
	number int
	kind   kind
	sample sample
}

// jsonl reads a JSON lines file.
func (l *loading) jsonl(ctx context.Context, file string) error {
	f, err := l.encoder.open(file)
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	defer f.Close()

	type tokenised struct {
		lines []line
		bytes int
	}
	encode := func(b block) (tokenised, error) {
		t := tokenised{bytes: b.bytes}
		for i, raw := range b.lines {
			if len(bytes.TrimSpace(raw)) == 0 {
				continue
			}
			r, err := l.encoder.parse(raw)
			if r.label != nil {
				r.label.file, r.label.line = file, b.first+i
			}
			if err == nil {
				var s sample
				if s, err = r.sample(l.encoder); err == nil {
					t.lines = append(t.lines, line{b.first + i, r.kind, s})
				}
			}
			if err != nil {
				return t, at(file, b.first+i, err)
			}
		}
		return t, nil
	}
	var first line
	collect := func(t tokenised) error {
		for _, line := range t.lines {
			if first.kind == "" {
				first = line
			}
			if line.kind != first.kind {
				return at(file, line.number, problem(ErrMixed, "found %s, expected %s as in line %d", line.kind, first.kind, first.number))
			}
			if !l.fits(line.sample) {
				return at(file, line.number, problem(ErrMixed, "found %s, expected rows of %d texts as in the files before", line.kind, l.set.texts))
			}
			l.add(line.sample)
		}
		l.progress.Bytes += int64(t.bytes)
		l.report()
		return nil
	}
	return inOrder(ctx, l.encoder.Workers, blocks(file, f), encode, collect)
}

// byteOrderMark starts files that some editors write.
var byteOrderMark = []byte("\xef\xbb\xbf")

// blocks splits a file into blocks of whole lines.
func blocks(file string, r io.Reader) iter.Seq2[block, error] {
	const blockSize = 64 << 10
	return func(yield func(block, error) bool) {
		in := bufio.NewReaderSize(r, blockSize)
		b := block{first: 1}
		for {
			raw, err := in.ReadBytes('\n')
			if err != nil && !errors.Is(err, io.EOF) {
				yield(b, fmt.Errorf("data: %w", err))
				return
			}
			b.bytes += len(raw)
			if b.first == 1 && len(b.lines) == 0 {
				raw = bytes.TrimPrefix(raw, byteOrderMark)
				if bytes.HasPrefix(raw, []byte{0xff, 0xfe}) || bytes.HasPrefix(raw, []byte{0xfe, 0xff}) {
					yield(b, at(file, 1, problem(ErrUTF8, "the file is UTF-16, expected UTF-8")))
					return
				}
			}
			if len(raw) > 0 {
				b.lines = append(b.lines, raw)
			}
			if err != nil {
				yield(b, nil)
				return
			}
			if b.bytes >= blockSize {
				if !yield(b, nil) {
					return
				}
				b = block{first: b.first + len(b.lines)}
			}
		}
	}
}
