package events

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// Fresh is the step before every step: a log opened with it starts empty.
const Fresh int64 = -1

// Metrics writes metrics.jsonl, one Record per line. A line reaches the file
// in one write, so that readers of a running training see whole lines.
type Metrics struct {
	f *os.File
}

// OpenMetrics opens the log at path for the steps after the given one: Fresh
// for a new run, the step of the checkpoint for a resumed one. Lines of later
// steps, and a last line that a kill cut short, are removed; a missing file
// is made.
//
// For a resumed log to equal an unbroken one, a run writes all records of a
// step before the checkpoint of that step.
func OpenMetrics(path string, after int64) (*Metrics, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return nil, err
	}
	if err := rewind(f, path, after); err != nil {
		f.Close()
		return nil, err
	}
	return &Metrics{f}, nil
}

func rewind(f *os.File, path string, after int64) error {
	var end int64
	if after > Fresh {
		err := scan(f, path, func(r Record, next int64) bool {
			if r.Step > after {
				return false
			}
			end = next
			return true
		})
		if err != nil {
			return err
		}
	}
	info, err := f.Stat()
	if err != nil || info.Size() == end {
		return err
	}
	return f.Truncate(end)
}

// Write appends a record.
func (m *Metrics) Write(r Record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = m.f.Write(append(line, '\n'))
	return err
}

// Sync flushes the file to the disk. Call it before a checkpoint.
func (m *Metrics) Sync() error { return m.f.Sync() }

// Close syncs and closes the file.
func (m *Metrics) Close() error { return errors.Join(m.f.Sync(), m.f.Close()) }

// ReadMetrics reads the log at path. It ignores an incomplete last line, as left by a killed or running writer.
func ReadMetrics(path string) ([]Record, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var records []Record
	err = scan(f, path, func(r Record, _ int64) bool {
		records = append(records, r)
		return true
	})
	return records, err
}

// scan calls visit with every record and the offset behind its line, until
// visit returns false.
func scan(f io.Reader, path string, visit func(r Record, next int64) bool) error {
	b := bufio.NewReader(f)
	var next int64
	for line := 1; ; line++ {
		text, err := b.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		next += int64(len(text))
		var r Record
		if err := json.Unmarshal(text, &r); err != nil {
			if !errors.Is(err, ErrRecord) {
				err = fmt.Errorf("%w: %w", ErrRecord, err)
			}
			return fmt.Errorf("%s:%d: %w", path, line, err)
		}
		if !visit(r, next) {
			return nil
		}
	}
}
