// Package decode measures generation: one token after contexts of several lengths, with and without an adapter, and
// prefill. For comparison it measures a loop that only reads the weights, and other programs.
package decode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/checkpoint"
	"github.com/lorafuse/lorafuse/dev/bench/peer"
	"github.com/lorafuse/lorafuse/dev/bench/program"
	"github.com/lorafuse/lorafuse/internal/model"
)

// Options configures Run.
type Options struct {
	bench.Turns
	Backend string // name of the backend, empty for the best
	Threads int    // of all programs, 0 for one per core
	// Sizes are names of models, see checkpoint.Shapes.
	Sizes []string
	// Contexts are context lengths in tokens, in ascending order. Programs are compared at the first.
	Contexts []int
	Tokens   int // that are generated for one sample
	Prompt   int // tokens of the prompt that is read
	Rank     int // of the adapter, on all linear layers but the head
	// Python is a Python with torch, transformers and peft, LlamaPython one
	// with llama-cpp-python; empty for none.
	Python, LlamaPython string
	// Dir is the folder for temporary models; empty means the system's temporary folder.
	Dir string
}

func (o *Options) check() ([]checkpoint.Shape, error) {
	for _, n := range []struct {
		what         string
		found, least int
	}{{"tokens of a sample", o.Tokens, 1}, {"a rank", o.Rank, 1}, {"tokens of a prompt", o.Prompt, 1}, {"threads", o.Threads, 0}} {
		if n.found < n.least {
			return nil, fmt.Errorf("%w: found %s of %d, expected %d or more", bench.ErrOptions, n.what, n.found, n.least)
		}
	}
	if len(o.Sizes) == 0 || len(o.Contexts) == 0 {
		return nil, fmt.Errorf("%w: found %d sizes of models and %d contexts, expected some", bench.ErrOptions, len(o.Sizes), len(o.Contexts))
	}
	last := 0
	for _, c := range o.Contexts {
		if c <= last {
			return nil, fmt.Errorf("%w: found a context of %d behind one of %d, expected them to rise from 1", bench.ErrOptions, c, last)
		}
		last = c
	}
	var shapes []checkpoint.Shape
	for _, name := range o.Sizes {
		s, err := checkpoint.ByName(name)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", bench.ErrOptions, err)
		}
		if most := max(last+o.Tokens, o.Prompt); most+1 > s.Positions {
			return nil, fmt.Errorf("%w: found texts of %d tokens, the model %s takes %d", bench.ErrOptions, most, name, s.Positions-1)
		}
		shapes = append(shapes, s)
	}
	return shapes, nil
}

// Run runs the benchmark. It fails with [bench.ErrOptions], with errors of lorafuse and with the error of ctx; the
// report then holds the measurements so far. A peer's failure is recorded in its row instead.
func Run(ctx context.Context, o Options) (_ *bench.Report, err error) {
	shapes, err := o.check()
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	m, err := program.Open(o.Backend, o.Threads)
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	dir, err := os.MkdirTemp(o.Dir, "lorafuse-bench-")
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	report := m.Report("decode")
	report.Environment.FileSystem = bench.Machine(dir).FileSystem
	var suites []*suite
	var all []bench.Task
	for _, shape := range shapes {
		s := &suite{Options: o, machine: m, shape: shape, dir: filepath.Join(dir, shape.Name)}
		suites, all = append(suites, s), append(all, s.tasks()...)
	}
	tasks, err := o.Select(all)
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	for _, s := range suites {
		mine := slices.DeleteFunc(slices.Clone(tasks), func(t bench.Task) bool { return !s.owns(t.Row) })
		if len(mine) == 0 {
			continue
		}
		m.Quick = s.shape.Name == "tiny"
		if err := s.run(ctx, mine, report); err != nil {
			return report, fmt.Errorf("decode: %w", err)
		}
	}
	return report, nil
}

// suite measures one model.
type suite struct {
	Options
	machine *program.Machine
	shape   checkpoint.Shape
	dir     string
	model   *model.Model
	// quantized are the same model with other weights.
	quantized []*model.Model
	engines   map[engineKind]*engine

	torch, llama *peer.Peer // nil if not measured
}

// run makes the model, measures it and removes it again.
func (s *suite) run(ctx context.Context, tasks []bench.Task, report *bench.Report) (err error) {
	if err := s.shape.Write(s.dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	if s.model, err = model.Open(s.dir); err != nil {
		return err
	}
	defer func() {
		s.closeEngines()
		for _, m := range append(s.quantized, s.model) {
			err = errors.Join(err, m.Close())
		}
	}()
	if s.Python != "" {
		s.torch = peer.Torch(s.Python, s.Threads)
		defer func() { err = errors.Join(err, s.torch.Close()) }()
	}
	if s.LlamaPython != "" {
		s.llama = peer.Llama(s.LlamaPython, s.Threads)
		defer func() { err = errors.Join(err, s.llama.Close()) }()
	}
	return s.machine.Measure(ctx, s.Turns, tasks, report)
}
