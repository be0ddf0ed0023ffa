// Command gpubench lists and benchmarks the GPUs of a machine. It is packed together with
// cmd/gpucheck, which starts it, and is smaller than lorafuse because it has no commands
// for users.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/checkpoint"
	"github.com/lorafuse/lorafuse/dev/bench/kernels"
	"github.com/lorafuse/lorafuse/dev/bench/large"
	"github.com/lorafuse/lorafuse/dev/bench/layer"
	"github.com/lorafuse/lorafuse/dev/bench/peer"
	"github.com/lorafuse/lorafuse/dev/bench/program"
	"github.com/lorafuse/lorafuse/dev/bench/upload"
	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

const usage = `usage: gpubench devices
       gpubench values -test.run=TESTS
       gpubench peaks|kernels|torch|large|layer|upload [flags]
prints JSON`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "gpubench:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	switch args[0] {
	case "devices":
		return devices(w)
	case "values":
		return values(args[1:])
	}
	s, err := parse(args[0], args[1:])
	if err != nil {
		return err
	}
	if s.once {
		s.turns.Runs, s.turns.Cold, s.turns.Peaks = 1, true, map[string]bench.Peak{}
	}
	report, err := s.measure(ctx)
	if report == nil || len(report.Rows) == 0 {
		return err
	}
	if s.turns.Save != nil {
		err = errors.Join(err, s.turns.Save(report)) // including the final peaks
	}
	err = errors.Join(err, json.NewEncoder(w).Encode(report))
	for _, row := range report.Rows {
		if row.Failure != "" && row.Failure != bench.ErrMemory.Error() {
			err = errors.Join(err, fmt.Errorf("%s: %s", row.ID(), row.Failure))
		}
	}
	return err
}

// devices lists the GPUs, or says why there is none, as gpucheck reads it.
func devices(w io.Writer) error {
	type missing struct {
		Backend string `json:"backend"`
		Reason  string `json:"reason"`
	}
	var list struct {
		Devices     []backend.Info `json:"devices"`
		Unavailable []missing      `json:"unavailable,omitempty"`
	}
	var err error
	if list.Devices, err = backend.Devices(backend.CUDA); err != nil {
		list.Unavailable = []missing{{backend.CUDA, err.Error()}}
	}
	return json.NewEncoder(w).Encode(list)
}

// suite is a benchmark suite and its options.
type suite struct {
	name, backend, python, dir string
	turns                      bench.Turns
	shrink                     int
	models, thresholds, once   bool
	large                      large.Options
}

// numbers is a flag of numbers with commas between them.
type numbers []int

func (n *numbers) String() string { return fmt.Sprint([]int(*n)) }

func (n *numbers) Set(text string) error {
	*n = nil
	for word := range strings.SplitSeq(text, ",") {
		x, err := strconv.Atoi(word)
		if err != nil {
			return err
		}
		*n = append(*n, x)
	}
	return nil
}

func parse(name string, args []string) (*suite, error) {
	s := &suite{name: name}
	s.large = large.Options{Contexts: []int{256, 1024}, Texts: []int{1, 32, 64}, Flux: checkpoint.FluxBlock}
	f := flag.NewFlagSet("gpubench "+name, flag.ContinueOnError)
	f.StringVar(&s.backend, "backend", backend.CUDA, "what is measured")
	f.IntVar(&s.turns.Runs, "runs", 5, "samples of each row")
	only := f.String("only", "", "measure only rows that match this expression")
	save := f.String("save", "", "file that has what has been measured so far, while it goes on")
	peaks := f.String("peaks", "", "what gpubench peaks has saved, not to be measured again")
	f.StringVar(&s.python, "python", "python3", "Python with torch, for the suite of that name")
	f.StringVar(&s.dir, "dir", "", "folder for models")
	f.IntVar(&s.shrink, "shrink", 1, "divide all sizes of kernels")
	f.BoolVar(&s.models, "models", false, "kernels of the shapes of large models, in bf16")
	f.BoolVar(&s.thresholds, "thresholds", false, "variants of kernels on both sides of each of the planner's thresholds")
	f.BoolVar(&s.once, "once", false, "launch every kernel once, for a profiler")
	f.StringVar(&s.large.Size, "size", "llama-8b", "language model")
	f.IntVar(&s.large.Rows, "rows", 4, "texts of a training step")
	f.IntVar(&s.large.Length, "length", 2048, "tokens of each")
	f.IntVar(&s.large.Tokens, "tokens", 32, "tokens that are generated for a sample")
	f.IntVar(&s.large.Adapters, "adapters", 16, "adapters of the texts that are served")
	f.IntVar(&s.large.Rank, "rank", 16, "of adapters")
	f.IntVar(&s.large.Side, "side", 1024, "pixels of a side of the picture of FLUX")
	f.IntVar(&s.large.Flux.Heads, "heads", s.large.Flux.Heads, "heads of FLUX")
	f.Var((*numbers)(&s.large.Contexts), "contexts", "tokens before those that are generated")
	f.Var((*numbers)(&s.large.Texts), "texts", "numbers of texts that are served at the same time")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("found %q\n%s", f.Args(), usage)
	}
	var err error
	if s.turns.Only, err = regexp.Compile(*only); err != nil {
		return nil, err
	}
	if *peaks != "" {
		if s.turns.Peaks, err = program.ReadPeaks(*peaks); err != nil {
			return nil, err
		}
	}
	if *save != "" {
		s.turns.Save = func(r *bench.Report) error {
			return fsatomic.ReplaceFile(*save, func(name string) error {
				out, err := os.Create(name)
				if err != nil {
					return err
				}
				return errors.Join(bench.WriteResults(out, []*bench.Report{r}), out.Close())
			})
		}
	}
	s.turns.Settle, s.turns.KeepGoing = 250*time.Millisecond, true
	s.large.Turns, s.large.Backend, s.large.Dir = s.turns, s.backend, s.dir
	return s, nil
}

func (s *suite) measure(ctx context.Context) (*bench.Report, error) {
	switch s.name {
	case "peaks":
		return program.Peaks(s.backend)
	case "kernels":
		return kernels.Run(ctx, kernels.Options{Turns: s.turns, Backend: s.backend, Shrink: s.shrink, Models: s.models, Thresholds: s.thresholds, Once: s.once})
	case "layer":
		return layer.Run(ctx, layer.Options{Turns: s.turns, Backend: s.backend, Shrink: s.shrink})
	case "upload":
		return upload.Run(ctx, upload.Options{Turns: s.turns, Backend: s.backend, Sizes: []string{s.large.Size}, Dir: s.dir})
	case "large":
		return large.Run(ctx, s.large)
	case "torch":
		return s.torch(ctx)
	}
	return nil, fmt.Errorf("found %q\n%s", s.name, usage)
}

// torch measures PyTorch and PEFT in one process: products and attention, then steps.
func (s *suite) torch(ctx context.Context) (_ *bench.Report, err error) {
	p := peer.Torch(s.python, 0)
	defer func() { err = errors.Join(err, p.Close()) }()
	report, err := kernels.Run(ctx, kernels.Options{Turns: s.turns, Backend: s.backend, Shrink: s.shrink, Torch: p})
	if err != nil {
		return report, err
	}
	o, save := s.large, s.turns.Save
	o.Torch, o.Runs = p, min(3, s.turns.Runs)
	if save != nil {
		o.Save = func(r *bench.Report) error {
			all := *report
			all.Rows = append(all.Rows[:len(all.Rows):len(all.Rows)], r.Rows...)
			return save(&all)
		}
	}
	steps, err := large.Run(ctx, o)
	if steps != nil {
		report.Rows = append(report.Rows, steps.Rows...)
	}
	return report, err
}
