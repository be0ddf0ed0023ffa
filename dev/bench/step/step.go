// Package step benchmarks training steps of lorafuse train and, if a Python is given, of torch with PEFT.
//
// Every round of a program runs in its own process, so that memory and startup are measured too. The programs
// alternate.
package step

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/checkpoint"
	"github.com/lorafuse/lorafuse/dev/bench/program"
	"github.com/lorafuse/lorafuse/internal/quant"
)

// Options configures Run. Turns.Runs is the number of rounds.
type Options struct {
	bench.Turns
	// Self is the command that runs one round of lorafuse, up to the order; see Measure.
	Self []string
	// Python is a Python with torch, transformers and peft; empty for none.
	Python  string
	Backend string
	Threads int // of all programs, 0 for one per core
	// Sizes are names of models, see checkpoint.Shapes.
	Sizes []string
	// Quantize lists methods to quantize the base on load. Each is measured next to unquantized weights.
	Quantize []string
	Rank     int // of the adapters, on all linear layers but the head
	Steps    int // timed ones of a round, after two that are not
	// Batch and Length are the rows per step and the tokens per row. Zero means the default for the size.
	Batch, Length int
	// Dir is the folder for temporary models; empty means the system's temporary folder.
	Dir string
}

// batches are the rows and tokens of a step that figures are of.
var batches = map[string]struct{ rows, length int }{"tiny": {2, 16}, "small": {4, 256}, "wide": {1, 512}, "large": {1, 512}, "qwen-0.5b": {8, 1024}, "qwen-7b": {4, 512}}

func (o *Options) check() ([]checkpoint.Shape, error) {
	for _, n := range []struct {
		what         string
		found, least int
	}{{"steps", o.Steps, 1}, {"a rank", o.Rank, 1}, {"rows of a step", o.Batch, 0}, {"tokens of a row", o.Length, 0}, {"threads", o.Threads, 0}} {
		if n.found < n.least {
			return nil, fmt.Errorf("%w: found %s of %d, expected %d or more", bench.ErrOptions, n.what, n.found, n.least)
		}
	}
	if len(o.Sizes) == 0 {
		return nil, fmt.Errorf("%w: no size of a model", bench.ErrOptions)
	}
	for _, name := range o.Quantize {
		if m, err := quant.ParseMethod(name); err != nil {
			return nil, fmt.Errorf("%w: %w", bench.ErrOptions, err)
		} else if m == quant.None {
			return nil, fmt.Errorf("%w: found quantization %q, expected int8 or nf4", bench.ErrOptions, name)
		}
	}
	var shapes []checkpoint.Shape
	for _, name := range o.Sizes {
		s, err := checkpoint.ByName(name)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", bench.ErrOptions, err)
		}
		shapes = append(shapes, s)
	}
	return shapes, nil
}

// Run runs the benchmark. It fails with [bench.ErrOptions], with errors of lorafuse's rounds and with the error of
// ctx; the report then holds the measurements so far. A peer's failure is recorded in its row instead.
func Run(ctx context.Context, o Options) (_ *bench.Report, err error) {
	shapes, err := o.check()
	if err != nil {
		return nil, fmt.Errorf("step: %w", err)
	}
	m, err := program.Open(o.Backend, o.Threads)
	if err != nil {
		return nil, fmt.Errorf("step: %w", err)
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	dir, err := os.MkdirTemp(o.Dir, "lorafuse-bench-")
	if err != nil {
		return nil, fmt.Errorf("step: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := &suite{Options: o, machine: m, dir: dir}
	m.Quick = true
	for _, shape := range shapes {
		m.Quick = m.Quick && shape.Name == "tiny"
		s.add(shape)
	}
	s.Cold = true
	tasks, err := s.Select(s.tasks)
	if err != nil {
		return nil, fmt.Errorf("step: %w", err)
	}
	report := m.Report("step")
	err = m.Measure(ctx, s.Turns, tasks, report)
	for _, row := range s.starts {
		if len(row.Seconds) > 0 {
			report.Rows = append(report.Rows, row)
		}
	}
	if err != nil {
		return report, fmt.Errorf("step: %w", err)
	}
	return report, nil
}

// Names of the measured programs.
const (
	ours     = "lorafuse"
	torch    = "torch + PEFT"
	compiled = "torch.compile + PEFT" // on GPUs only
)

// suite lists the rows of all models.
type suite struct {
	Options
	machine *program.Machine
	dir     string
	tasks   []bench.Task
	starts  []*bench.Row // the times until the first steps of programs
}

// add lists the programs for one model.
func (s *suite) add(shape checkpoint.Shape) {
	rows, length := batches[shape.Name].rows, batches[shape.Name].length
	if s.Batch > 0 {
		rows = s.Batch
	}
	if s.Length > 0 {
		length = s.Length
	}
	input := fmt.Sprintf("%s, %d × %d tokens, r=%d", shape, rows, length, s.Rank)
	o := order{
		Model: filepath.Join(s.dir, shape.Name), Rows: filepath.Join(s.dir, shape.Name+".safetensors"), Out: filepath.Join(s.dir, "run"),
		Backend: s.Backend, Threads: s.Threads, Batch: rows, Length: length, Rank: s.Rank, Steps: s.Steps, Vocab: shape.Vocab,
	}
	row := func(program, precision string) (steps, start *bench.Row) {
		tokens := rows * length
		steps = &bench.Row{Group: "Training step", Program: program, Name: precision, Input: input, Tokens: float64(tokens), Flops: flops(shape, rows, length)}
		return steps, &bench.Row{Group: "From the start of the process to its first step", Program: program, Name: precision, Input: input}
	}
	var peers []bench.Task
	var theirStarts []*bench.Row
	var beside []string // rows for comparison on GPUs, in bf16
	for _, p := range []backend.Precision{backend.F32, backend.BF16} {
		if s.Python == "" {
			break
		}
		steps, start := row(torch, p.String())
		theirStarts = append(theirStarts, start)
		o := o
		o.Precision, o.Backend = p.String(), s.machine.Info.Backend
		peers = append(peers, s.task(steps, start, peer{s.Python}, shape, o))
		peers[len(peers)-1].Foreign = true
		if s.machine.OnGPU() && p == backend.BF16 {
			beside = append(beside, steps.ID())
			o.Compile = true
			steps, start := row(compiled, p.String())
			peers = append(peers, s.task(steps, start, peer{s.Python}, shape, o))
			peers[len(peers)-1].Foreign = true
			beside = append(beside, steps.ID())
		}
	}
	for _, p := range []backend.Precision{backend.F32, backend.BF16} {
		steps, start := row(ours, p.String())
		s.machine.Hold(steps, p)
		o := o
		o.Precision = p.String()
		t := s.task(steps, start, own{s.Self}, shape, o)
		if s.machine.OnGPU() && p == backend.BF16 {
			t.Marks = []bench.Mark{{Name: bench.TargetStep, Row: steps.ID(), FlopPeak: bench.LeastStep}}
			if beside != nil {
				t.Marks = append(t.Marks, bench.Mark{Name: bench.TargetPEFT, Row: steps.ID(), Beside: beside, Factor: bench.MostPEFT})
			}
		}
		s.tasks, s.starts = append(s.tasks, t), append(s.starts, start)
	}
	for _, method := range s.Quantize {
		for _, p := range []backend.Precision{backend.F32, backend.BF16} {
			steps, start := row(ours, fmt.Sprintf("%v, %s weights", p, method))
			s.machine.Hold(steps, p)
			o := o
			o.Precision, o.Quantize = p.String(), method
			s.tasks = append(s.tasks, s.task(steps, start, own{s.Self}, shape, o))
			s.starts = append(s.starts, start)
		}
	}
	s.tasks, s.starts = append(s.tasks, peers...), append(s.starts, theirStarts...)
}

// flops returns the minimum floating-point operations of a step: two products with every weight of a linear layer per
// token, and attention, whose backward costs twice its forward. Adapters are not counted.
func flops(s checkpoint.Shape, rows, length int) float64 {
	pairs := rows * length * (length + 1) / 2
	return 4*float64(s.LinearParams())*float64(rows*length) + 12*float64(pairs)*float64(s.Hidden)*float64(s.Layers)
}
