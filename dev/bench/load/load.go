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
	"runtime"
	"slices"

	"github.com/lorafuse/lorafuse/dev/bench"
)

// Options configures Run. Samples of new processes are cold.
type Options struct {
	bench.Turns
	// Self is the command that runs one operation of lorafuse, up to OP; see Measure.
	Self []string
	// Peers are the commands of other programs, by name; see ReadPeers.
	Peers map[string][]string
	// Dir is the folder for temporary files; empty means the system's temporary folder. They take up to three times
	// Size.
	Dir string
	// Size is the size of the larger model in bytes. Zero means FullSize.
	Size int64
}

// Run runs the benchmark. It fails with [bench.ErrOptions], if files cannot be written, if an operation of lorafuse
// fails, and with the error of ctx; the report then holds the measurements so far. A peer's failure is recorded in its
// row instead.
func Run(ctx context.Context, o Options) (_ *bench.Report, err error) {
	if o.Size == 0 {
		o.Size = FullSize
	}
	if o.Size < MinSize || o.Size > 100*FullSize {
		return nil, fmt.Errorf("load: %w: found a size of %d bytes, expected %d to %d", bench.ErrOptions, o.Size, MinSize, int64(100*FullSize))
	}
	dir, err := os.MkdirTemp(o.Dir, "lorafuse-bench-")
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	o.Cold = true
	tasks, err := o.Select(o.tasks(&files{dir: dir, size: o.Size}))
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	report := &bench.Report{Title: "load", Environment: bench.Machine(dir)}
	if err := o.Measure(ctx, tasks, report); err != nil {
		return report, fmt.Errorf("load: %w", err)
	}
	return report, nil
}

// tasks returns the tasks of the rows that can be measured, with the inputs of a group one after another.
func (o *Options) tasks(files *files) (tasks []bench.Task) {
	for rest := specs; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(s spec) bool { return s.group != rest[0].group })
		if n < 0 {
			n = len(rest)
		}
		for _, in := range rest[0].inputs {
			for _, s := range rest[:n] {
				command := o.Peers[s.program]
				if s.own() {
					command = o.Self
				}
				if command == nil || s.linux && runtime.GOOS != "linux" {
					continue
				}
				x := &sampler{spec: s, row: s.row(in), command: command, files: files}
				tasks = append(tasks, bench.Task{Row: x.row, Foreign: !s.own(), Begin: x.begin})
			}
		}
		rest = rest[n:]
	}
	return tasks
}

// sampler runs an operation in processes.
type sampler struct {
	spec
	row     *bench.Row
	command []string
	files   *files
	in      *file
}

func (s *sampler) begin(context.Context) (_ bench.Sampler, err error) {
	if s.in, err = s.files.open(s.row.Input); err != nil {
		return nil, err
	}
	s.row.Bytes = s.bytes(s.in)
	return s, nil
}

// memoryOfSample is the memory that programs use as a multiple of the file size, including the page cache: Python
// holds two copies and writes one.
const memoryOfSample = 4

// Sample runs one process.
func (s *sampler) Sample(ctx context.Context) (_ float64, err error) {
	var out string
	if s.writes {
		if out, err = s.files.place(); err != nil {
			return 0, err
		}
	}
	if s.moves == allBytes {
		warm(memoryOfSample * s.in.size)
	}
	a, err := call(ctx, s.command, s.op, s.in.path, out, max(s.repeat, 1))
	if err != nil {
		return 0, err
	}
	s.row.PeakRSS, s.row.Detail = max(s.row.PeakRSS, a.PeakRSS), a.Detail
	return s.figure(a.Seconds), nil
}

// Close removes the output.
func (s *sampler) Close() error { return s.files.clear() }
