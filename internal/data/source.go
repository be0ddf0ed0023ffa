package data

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
)

// Source describes the rows that were read from a file.
type Source struct {
	Name   string
	Format Format
	Layout string // the kind of its rows, such as alpaca
	Rows   int    // that were kept

	layout *layout  // of rows of language
	names  []string // of its columns that have values; "" for the others
}

// Columns describes the columns that were read, such as instruction + input → output. It is empty if the layout names
// them.
func (s Source) Columns() string {
	if s.layout == nil {
		return ""
	}
	if text := s.layout.joinColumns(s.names); text != s.Layout {
		return text
	}
	return ""
}

// Sources returns the files of the dataset, in order.
func (d *Dataset) Sources() []Source { return slices.Clone(d.sources) }

// Report describes the files of the dataset, one line for all consecutive files with the same layout:
// "alpaca, 52,002 rows of train.csv: instruction + input → output".
func (d *Dataset) Report() (lines []string) {
	same := func(a, b Source) bool { return a.Layout == b.Layout && a.Columns() == b.Columns() }
	for from := 0; from < len(d.sources); {
		first, to, rows := d.sources[from], from, 0
		for ; to < len(d.sources) && same(first, d.sources[to]); to++ {
			rows += d.sources[to].Rows
		}
		name := filepath.Base(first.Name)
		if to-from > 1 {
			name = fmt.Sprintf("%d files, %s to %s", to-from, name, filepath.Base(d.sources[to-1].Name))
		}
		line := fmt.Sprintf("%s, %s of %s", first.Layout, countRows(rows), name)
		if columns := first.Columns(); columns != "" {
			line += ": " + columns
		}
		lines, from = append(lines, line), to
	}
	return lines
}

// add counts a row.
func (s *Source) add(row encodedRow) {
	if s.Layout == "" {
		s.Layout = string(row.kind)
	}
	if !row.sample.dropped && !row.sample.empty {
		s.Rows++
	}
	if row.read == nil {
		return
	}
	if s.layout == nil {
		s.layout, s.names = row.read.layout, make([]string, len(row.read.names))
	}
	for i, name := range row.read.names {
		if s.names[i] == "" && name != "" && (!s.layout.columns[i].optional || row.read.has(i)) {
			s.names[i] = name
		}
	}
}

// countRows formats a number of rows: "52,002 rows".
func countRows(n int) string {
	text := strconv.Itoa(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	if n == 1 {
		return text + " row"
	}
	return text + " rows"
}
