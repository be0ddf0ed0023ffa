package data

import (
	"errors"
	"fmt"
	"slices"
)

// Detect returns the kind of rows in files, by the columns of the first row, which it also returns. Files of texts or of
// token IDs have no columns; they are LanguageRows.
func Detect(entries []string, o Options) (rows Rows, columns []string, err error) {
	if o, err = o.withDefaults(); err != nil {
		return "", nil, err
	}
	if len(entries) == 0 {
		return "", nil, problem(ErrEmpty, "no data files")
	}
	files, err := o.expand(entries[0])
	if err != nil {
		return "", nil, expandError(err)
	}
	in, err := o.input(files[0])
	if err != nil {
		return "", nil, err
	}
	defer in.Close()
	format := o.Format
	if format == FormatAuto {
		if format, err = in.sniff(); err != nil {
			return "", nil, at(files[0], 0, err)
		}
	}
	f := rowFormat(format)
	if f == nil {
		return LanguageRows, nil, nil
	}
	err = f.rows(in, func(object []byte, number int) error {
		fields, keys, err := parseLine(object)
		if err == nil {
			columns, err = o.rename(fields, keys)
		}
		if err != nil {
			return place{in.name, number, f.byLine}.wrap(err)
		}
		return errStopped
	})
	if err != nil && !errors.Is(err, errStopped) {
		var known *Error
		if errors.As(err, &known) && known.Place != "" {
			return "", nil, err
		}
		return "", nil, at(files[0], 0, err)
	}
	if len(columns) == 0 {
		return "", nil, at(files[0], 0, problem(ErrEmpty, "no rows"))
	}
	return rowsFor(columns), columns, nil
}

// rowsFor returns the kind of rows that columns are for.
func rowsFor(columns []string) Rows {
	has := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(columns, name) })
	}
	switch {
	case has("chosen", "rejected"), has("preferred_output", "non_preferred_output"):
		return PreferenceRows
	case has("anchor", "positive"):
		return PairRows
	case has("text", "label"):
		return LabelledRows
	}
	return LanguageRows
}

// TotalBytes returns the size of files.
func TotalBytes(entries []string, o Options) (total int64, err error) {
	for _, entry := range entries {
		files, err := o.expand(entry)
		if err != nil {
			return 0, expandError(err)
		}
		for _, file := range files {
			info, err := o.stat(file)
			if err != nil {
				return 0, fmt.Errorf("data: %w", err)
			}
			total += info.Size()
		}
	}
	return total, nil
}
