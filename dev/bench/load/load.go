// Package load measures how fast files are opened, read and written: by this module's safetensors package, by plain
// system calls and, if built, by other libraries.
//
// Every sample runs in its own process, so that none reuses memory of another. The rows of a group alternate, so that
// all of them see the same load. A measured program, including lorafuse, is called with
//
//	PROGRAM OP FILE OUT REPEAT
//
// It runs OP on FILE REPEAT times, writes any output to OUT, and prints an [Answer] as JSON.
package load

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"

	"github.com/lorafuse/lorafuse/dev/bench"
)

// Options configures Run.
type Options struct {
	// Self is the command that runs one operation of lorafuse, up to OP; see Measure.
	Self []string
	// Peers are the commands of other programs, by name; see ReadPeers.
	Peers map[string][]string
	// Dir is the folder for temporary files; empty means the system's temporary folder. They take up to three times
	// Size.
	Dir string
	// Size is the size of the larger model in bytes. Zero means FullSize.
	Size int64
	// Runs is the number of samples per row.
	Runs int
	// Only selects rows by "group: program: what, file"; nil selects all.
	Only *regexp.Regexp
	// Progress is called with the number of samples taken; it may be nil.
	Progress func(done, total int)
}

// ErrOptions is the error of options that make no sense.
var ErrOptions = errors.New("bad options")

// Run runs the benchmark. It fails with ErrOptions, if files cannot be written, if an operation of lorafuse fails, and
// with the error of ctx; the report then holds the measurements so far. A peer's failure is not an error: its row
// gives the reason.
func Run(ctx context.Context, o Options) (_ *bench.Report, err error) {
	if o.Size == 0 {
		o.Size = FullSize
	}
	switch {
	case o.Runs < 1:
		return nil, fmt.Errorf("load: %w: found %d runs, expected 1 or more", ErrOptions, o.Runs)
	case o.Size < MinSize || o.Size > 100*FullSize:
		return nil, fmt.Errorf("load: %w: found a size of %d bytes, expected %d to %d", ErrOptions, o.Size, MinSize, int64(100*FullSize))
	}
	rows := o.rows()
	if len(rows) == 0 {
		return nil, fmt.Errorf("load: %w: no row matches %q", ErrOptions, o.Only)
	}
	dir, err := os.MkdirTemp(o.Dir, "lorafuse-bench-")
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := &runner{Options: o, files: files{dir: dir, size: o.Size}, total: o.Runs * len(rows)}
	report := &bench.Report{Title: "load", Environment: bench.Machine(dir)}
	for len(rows) > 0 && err == nil {
		n := slices.IndexFunc(rows, func(m *measured) bool { return m.group != rows[0].group })
		if n < 0 {
			n = len(rows)
		}
		err = r.measure(ctx, rows[:n])
		for _, m := range rows[:n] {
			if len(m.row.Seconds) > 0 || m.row.Failure != "" {
				report.Rows = append(report.Rows, m.row)
			}
		}
		rows = rows[n:]
	}
	return report, err
}

// measured is a row on its way.
type measured struct {
	spec
	row *bench.Row
}

// rows returns the selected rows that can be measured.
func (o *Options) rows() (rows []*measured) {
	for _, s := range specs {
		if !s.own() && o.Peers[s.program] == nil || s.linux && runtime.GOOS != "linux" {
			continue
		}
		for _, in := range s.inputs {
			m := &measured{spec: s, row: s.row(in)}
			if o.Only == nil || o.Only.MatchString(m.row.ID()) {
				rows = append(rows, m)
			}
		}
	}
	return rows
}

// runner samples the rows.
type runner struct {
	Options
	files files
	done  int // samples
	total int
}

// measure samples the rows of a group alternately.
func (r *runner) measure(ctx context.Context, rows []*measured) error {
	for _, m := range rows {
		f, err := r.files.open(m.row.Input)
		if err != nil {
			return err
		}
		m.row.Bytes = m.bytes(f)
	}
	for range r.Runs {
		for _, m := range rows {
			if m.row.Failure == "" {
				if err := r.sample(ctx, m); err != nil {
					return err
				}
			}
			r.done++
			if r.Progress != nil {
				r.Progress(r.done, r.total)
			}
		}
	}
	return r.files.clear()
}

// memoryOfSample is the memory that programs use as a multiple of the file size, including the page cache: Python
// holds two copies and writes one.
const memoryOfSample = 4

// sample measures a row once.
func (r *runner) sample(ctx context.Context, m *measured) error {
	command := r.Self
	if !m.own() {
		command = r.Peers[m.program]
	}
	f, err := r.files.open(m.row.Input)
	if err != nil {
		return err
	}
	var out string
	if m.writes {
		if out, err = r.files.place(); err != nil {
			return err
		}
	}
	if m.moves == allBytes {
		warm(memoryOfSample * f.size)
	}
	a, err := call(ctx, command, m.op, f.path, out, max(m.repeat, 1))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && m.own():
		return err
	case err != nil:
		m.row.Failure, m.row.Seconds = err.Error(), nil
		return nil
	}
	m.row.Seconds = append(m.row.Seconds, m.figure(a.Seconds))
	m.row.PeakRSS = max(m.row.PeakRSS, a.PeakRSS)
	m.row.Detail = a.Detail
	return nil
}
