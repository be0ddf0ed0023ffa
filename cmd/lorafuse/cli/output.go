package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"text/tabwriter"
)

// errGone is the error of an output whose reader has closed it, as head does.
var errGone = errors.New("the reader is gone")

// output is standard output. It keeps its first error, so that a full disk under a redirection is reported at the end
// even if no caller checks. If it is closed at program start (>&-), Go has replaced it by the null device, which
// cannot be distinguished from one that the caller passed.
type output struct {
	w   io.Writer
	err error
}

// Write writes, unless an earlier write failed.
func (o *output) Write(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.w.Write(p)
	if err != nil {
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
			err = fmt.Errorf("%w: %w", errGone, err)
		}
		o.err = &failure{fmt.Errorf("standard output: %w", err)}
		err = o.err
	}
	return n, err
}

func (o *output) printf(format string, args ...any) { fmt.Fprintf(o, format, args...) }

// json prints v, over several lines.
func (o *output) json(v any) error { return encode(o, v, "  ") }

// jsonLine prints v on one line.
func (o *output) jsonLine(v any) error { return encode(o, v, "") }

func encode(w io.Writer, v any, indent string) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	return e.Encode(v)
}

// table prints rows in columns. A row whose first cell is empty continues the row above it.
func (o *output) table(rows [][]string) {
	t := tabwriter.NewWriter(o, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	t.Flush()
}
