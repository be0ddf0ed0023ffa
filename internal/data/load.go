package data

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// Load reads and tokenizes files, in order, as one dataset. An entry is a file, a folder, a pattern of files, or a name
// that Options.Resolve knows. Errors name file and line, and do not depend on the number of workers. When ctx is cancelled, Load returns its error.
func Load(ctx context.Context, entries []string, o Options) (*Dataset, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	l := loading{encoder: encoder{o}, set: newDataset()}
	var files []string
	var ends []int64
	var firsts []int // the first file of each entry
	for _, entry := range entries {
		names, err := o.expand(entry)
		if err != nil {
			return nil, expandError(err)
		}
		firsts = append(firsts, len(files))
		for _, file := range names {
			info, err := o.stat(file)
			if err != nil {
				return nil, fmt.Errorf("data: %w", err)
			}
			l.progress.Size += info.Size()
			files, ends = append(files, file), append(ends, l.progress.Size)
		}
	}
	if len(files) == 0 {
		return nil, problem(ErrEmpty, "no data files")
	}
	for i, file := range files {
		for len(l.set.entries) < len(firsts) && firsts[len(l.set.entries)] == i {
			l.set.entries = append(l.set.entries, l.set.Len())
		}
		if l.full() {
			break
		}
		if err := l.file(ctx, file); err != nil {
			if ctx.Err() != nil || l.refuse(err) != nil {
				return nil, err
			}
		}
		l.set.stats.Files++
		l.progress.Bytes = ends[i]
		l.report()
	}
	if l.set.store.file != nil {
		if err := l.set.store.spill(o.CacheDir); err != nil {
			return nil, err
		}
		l.set.store.words = nil
	}
	for len(l.set.entries) < len(entries) { // after MaxRows
		l.set.entries = append(l.set.entries, l.set.Len())
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
	in, err := l.encoder.input(file)
	if err != nil {
		return err
	}
	defer in.Close()
	format := l.encoder.Format
	if format == FormatAuto {
		if format, err = in.sniff(); err != nil {
			return at(file, 0, err)
		}
	}
	rows := rowFormat(format)
	switch {
	case rows != nil:
		return l.rows(ctx, in, rows)
	case l.encoder.Rows != LanguageRows:
		return at(file, 0, l.refuseFormat(format))
	case format == FormatText:
		return l.text(ctx, in)
	}
	return l.tokens(in)
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
func (l *loading) add(s sample) error {
	stats := &l.set.stats
	switch {
	case s.dropped:
		stats.Dropped++
		return nil
	case s.empty:
		stats.Empty++
		return nil
	case s.truncated:
		stats.Truncated++
	}
	switch {
	case s.label != nil:
		l.set.appendTyped(s.texts[0], s.types)
		l.labels = append(l.labels, s.label)
	case s.texts != nil:
		l.set.appendWhole(s.texts, s.answers)
	default:
		l.set.append(s.ids, s.loss)
	}
	if len(l.set.store.words) >= l.encoder.InMemory {
		return l.set.store.spill(l.encoder.CacheDir)
	}
	return nil
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

// expandError adds the prefix of the package to errors of the file system.
func expandError(err error) error {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("data: %w", err)
	}
	return err
}
