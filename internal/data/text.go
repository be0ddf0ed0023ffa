package data

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"strings"
	"unicode/utf8"
)

// document is a part of a plain text file.
type document struct {
	text string
	line int // line number of its first character
}

// text reads a plain text file.
func (l *loading) text(ctx context.Context, in *input) error {
	file := in.name
	if l.encoder.Tokenizer == nil && !l.encoder.ParseOnly {
		return at(file, 0, problem(ErrOption, "plain text needs a tokenizer"))
	}
	raw, err := in.all()
	if err != nil {
		return err
	}
	raw = bytes.TrimPrefix(raw, byteOrderMark)
	if !utf8.Valid(raw) {
		valid := raw[:validPrefix(raw)]
		return at(file, 1+bytes.Count(valid, []byte("\n")), problem(ErrUTF8, "byte %d of the file is not UTF-8", len(valid)+1))
	}
	encode := func(d document) ([]sample, error) {
		if l.encoder.ParseOnly {
			return []sample{parsed(record{})}, nil
		}
		if l.encoder.DocumentSeparator == "" {
			rows, err := l.encoder.windows(d.text)
			if err != nil {
				return nil, at(file, 0, err)
			}
			return rows, nil
		}
		s, err := l.encoder.text(d.text)
		if err != nil {
			return nil, at(file, d.line, err)
		}
		return []sample{s}, nil
	}
	collect := func(rows []sample) error {
		for _, s := range rows {
			if l.full() {
				return errStopped
			}
			if err := l.add(s); err != nil {
				return err
			}
		}
		return nil
	}
	before := l.set.stats.Rows
	documents := withoutErrors(split(string(raw), l.encoder.DocumentSeparator))
	err = inOrder(ctx, l.encoder.Workers, documents, encode, collect)
	l.set.sources = append(l.set.sources, Source{Name: file, Format: FormatText, Layout: "plain text", Rows: l.set.stats.Rows - before})
	if errors.Is(err, errStopped) {
		return nil
	}
	return err
}

// split splits a text into documents and skips blank ones.
func split(text, separator string) iter.Seq[document] {
	next := func(rest string) (doc, tail string, more bool) { return strings.Cut(rest, separator) }
	switch separator {
	case "":
		next = func(rest string) (doc, tail string, more bool) { return rest, "", false }
	case BlankLine:
		next = cutBlankLine
	}
	return func(yield func(document) bool) {
		line := 1
		for rest, more := text, true; more; {
			before := rest
			var doc string
			doc, rest, more = next(rest)
			if strings.TrimSpace(doc) != "" && !yield(document{doc, line}) {
				return
			}
			line += strings.Count(before[:len(before)-len(rest)], "\n")
		}
	}
}

// cutBlankLine cuts a text at its first blank line. The line break before it belongs to neither part.
func cutBlankLine(text string) (doc, tail string, more bool) {
	for start := 0; start < len(text); {
		end := start + strings.IndexByte(text[start:], '\n')
		if end < start {
			return text, "", false
		}
		if strings.TrimSpace(text[start:end]) == "" {
			return strings.TrimRight(text[:start], "\r\n"), text[end+1:], true
		}
		start = end + 1
	}
	return strings.TrimRight(text, "\r\n"), "", false
}

func withoutErrors[T any](items iter.Seq[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for item := range items {
			if !yield(item, nil) {
				return
			}
		}
	}
}
