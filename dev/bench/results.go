package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// ErrResults is the error for input that is not a benchmark report.
var ErrResults = errors.New("no results of a benchmark")

// record is the file format of a report.
type record struct {
	Title       string      `json:"title"`
	Command     string      `json:"command,omitempty"`
	Note        string      `json:"note,omitempty"`
	Environment Environment `json:"environment"`
	Rows        []rowRecord `json:"rows"`
	Marks       []Verdict   `json:"marks"`
}

// fields has the fields of a Row without its methods.
type fields Row

// rowRecord is the file format of a row, with its figures.
type rowRecord struct {
	fields
	Figures
}

// ReadResults reads consecutive reports, as --json prints them and [WriteResults] writes them. Figures are computed
// from the samples; stored figures are used only for rows without samples. It fails with [ErrResults], the line and
// the problem.
func ReadResults(r io.Reader) ([]*Report, error) {
	raw, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	var reports []*Report
	for {
		start := skipSpace(raw, d.InputOffset())
		var x record
		if err := d.Decode(&x); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("%w: %s", ErrResults, where(raw, start, err))
		}
		report, err := x.report()
		if err != nil {
			return nil, fmt.Errorf("%w: the report that begins in line %d: %w", ErrResults, lineAt(raw, start), err)
		}
		reports = append(reports, report)
	}
	if len(reports) == 0 {
		return nil, fmt.Errorf("%w: nothing is there", ErrResults)
	}
	return reports, nil
}

// skipSpace returns the offset of the next byte that is not white space.
func skipSpace(raw []byte, at int64) int64 {
	for at < int64(len(raw)) && bytes.IndexByte([]byte(" \t\r\n"), raw[at]) >= 0 {
		at++
	}
	return at
}

// lineAt counts lines up to an offset.
func lineAt(raw []byte, at int64) int {
	return 1 + bytes.Count(raw[:min(max(at, 0), int64(len(raw)))], []byte("\n"))
}

// where describes an error in JSON that starts at an offset, with its line if known.
func where(raw []byte, start int64, err error) string {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	message := strings.TrimPrefix(err.Error(), "json: ")
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the file ends in the middle of a report"
	case errors.As(err, &syntax):
		start = syntax.Offset
	case errors.As(err, &kind):
		start += kind.Offset
		message = fmt.Sprintf("%s: found %s, expected %v", kind.Field, kind.Value, kind.Type)
	}
	return fmt.Sprintf("line %d: %s", lineAt(raw, start), message)
}

// report checks a record and makes a report of it.
func (x *record) report() (*Report, error) {
	e := &x.Environment
	for _, s := range []string{x.Title, x.Command, x.Note, e.CPU, e.Device} {
		if err := printable(s); err != nil {
			return nil, err
		}
	}
	switch {
	case x.Title == "":
		return nil, errors.New("title: is missing")
	case e.Time.IsZero():
		return nil, errors.New("environment: time: is missing")
	case e.CPU == "":
		return nil, errors.New("environment: cpu: is missing")
	case e.Threads < 1:
		return nil, fmt.Errorf("environment: threads: found %d, expected 1 or more", e.Threads)
	case len(x.Rows) == 0:
		return nil, errors.New("rows: found none")
	}
	r := &Report{Title: x.Title, Command: x.Command, Note: x.Note, Environment: *e, verdicts: x.Marks}
	seen := map[string]bool{}
	for i := range x.Rows {
		row, err := x.Rows[i].row()
		if err == nil && seen[row.ID()] {
			err = errors.New("is there twice")
		}
		if err != nil {
			return nil, fmt.Errorf("row %d, %q: %w", i+1, (*Row)(&x.Rows[i].fields).ID(), err)
		}
		seen[row.ID()] = true
		r.Rows = append(r.Rows, row)
	}
	for i := range x.Marks {
		v := &x.Marks[i]
		for _, s := range []string{v.Name, v.Row, v.Beside} {
			if err := printable(s); err != nil {
				return nil, fmt.Errorf("mark %d, %q: %w", i+1, v.Name, err)
			}
		}
		if v.Ratio < 0 {
			return nil, fmt.Errorf("mark %d, %q: ratio: found %g, expected 0 or more", i+1, v.Name, v.Ratio)
		}
	}
	return r, nil
}

// row checks a row.
func (x *rowRecord) row() (*Row, error) {
	r := Row(x.fields)
	for _, s := range []struct{ key, value string }{{"group", r.Group}, {"program", r.Program}, {"name", r.Name}} {
		if s.value == "" {
			return nil, fmt.Errorf("%s: is missing", s.key)
		}
	}
	for _, s := range []string{r.Group, r.Program, r.Name, r.Input, r.Detail, r.Failure} {
		if err := printable(s); err != nil {
			return nil, err
		}
	}
	for _, n := range []struct {
		key   string
		value float64
	}{
		{"bytes", float64(r.Bytes)}, {"flops", r.Flops}, {"tokens", r.Tokens}, {"peak: flop_per_s", r.Peak.Flops}, {"peak: byte_per_s", r.Peak.Bytes},
		{"peak_rss_bytes", float64(r.PeakRSS)}, {"share", r.Share}, {"runs", float64(x.Runs)}, {"median_s", x.Median}, {"p10_s", x.P10}, {"p90_s", x.P90}, {"min_s", x.Min},
	} {
		if n.value < 0 {
			return nil, fmt.Errorf("%s: found %g, expected 0 or more", n.key, n.value)
		}
	}
	for i, s := range r.Seconds {
		if s < 0 {
			return nil, fmt.Errorf("seconds: sample %d: found %g, expected 0 or more", i+1, s)
		}
	}
	if len(r.Seconds) == 0 {
		r.Seconds = nil
		r.stated = Figures{Runs: x.Runs, Median: x.Median, P10: x.P10, P90: x.P90, Min: x.Min}
	}
	return &r, nil
}

// printable rejects text that would break a table line.
func printable(s string) error {
	if i := strings.IndexFunc(s, func(c rune) bool { return unicode.IsControl(c) || c == unicode.ReplacementChar }); i >= 0 {
		return fmt.Errorf("found a control character in %q", s)
	}
	return nil
}

// WriteResults writes reports for [ReadResults], with a line for each row.
func WriteResults(w io.Writer, reports []*Report) error {
	var b bytes.Buffer
	for _, r := range reports {
		if err := r.write(&b); err != nil {
			return err
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (r *Report) write(b *bytes.Buffer) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	value := func(before string, v any, after string) error {
		b.WriteString(before)
		err := e.Encode(v)
		b.Truncate(b.Len() - 1) // without the end of the line
		b.WriteString(after)
		return err
	}
	err := value("{\n\"title\": ", r.Title, ",\n")
	for _, s := range []struct{ key, value string }{{"command", r.Command}, {"note", r.Note}} {
		if s.value != "" {
			err = errors.Join(err, value(fmt.Sprintf("%q: ", s.key), s.value, ",\n"))
		}
	}
	err = errors.Join(err, value(`"environment": `, r.Environment, ",\n\"rows\": ["))
	for i, row := range r.Rows {
		err = errors.Join(err, value(separator(i), row, ""))
	}
	b.WriteString("\n],\n\"marks\": [")
	for i, v := range r.Verdicts() {
		err = errors.Join(err, value(separator(i), v, ""))
	}
	b.WriteString("\n]\n}\n")
	return err
}

// separator returns the separator before element i of a list.
func separator(i int) string {
	if i == 0 {
		return "\n"
	}
	return ",\n"
}
