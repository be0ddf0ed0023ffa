package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench"
	decoding "github.com/lorafuse/lorafuse/dev/bench/decode"
	"github.com/lorafuse/lorafuse/dev/bench/kernels"
	"github.com/lorafuse/lorafuse/dev/bench/layer"
	"github.com/lorafuse/lorafuse/dev/bench/step"
	"github.com/lorafuse/lorafuse/dev/bench/upload"
)

// suiteFlags holds the flags of benchmarks whose tasks alternate.
type suiteFlags struct {
	report  reportFlags
	runs    int
	only    string
	threads int
	backend string
	python  string
	save    string
}

func (f *suiteFlags) flags(c *cobra.Command, runs int, python string) {
	f.report.flags(c)
	c.Flags().IntVar(&f.runs, "runs", runs, "samples of each row, after one that is thrown away")
	c.Flags().StringVar(&f.only, "only", "", "measure only rows that match this expression, as \"group: program: what, on what\"")
	c.Flags().IntVar(&f.threads, "threads", 0, "threads of the CPU backend and of other programs, 0 is one per core")
	c.Flags().StringVar(&f.backend, "backend", backend.Auto, "machine to compute on: "+backend.Choices)
	c.Flags().StringVar(&f.save, "save", "", "file that has what has been measured so far, as JSON, while it goes on")
	if python != "" {
		c.Flags().StringVar(&f.python, "python", "", python)
	}
}

// saver returns a function that writes unfinished reports to a file, or nil if no file was requested.
func (f *suiteFlags) saver(command string) func(*bench.Report) error {
	if f.save == "" {
		return nil
	}
	return func(r *bench.Report) error {
		r.Command = command
		return saveResults(f.save, []*bench.Report{r})
	}
}

// turns checks the flags.
func (f *suiteFlags) turns(a *app, command string) (bench.Turns, error) {
	t := bench.Turns{Runs: f.runs, Settle: 250 * time.Millisecond, Save: f.saver(command), Progress: func(done, total int) { a.progress().Steps("measuring", int64(done), int64(total), "") }}
	if f.only != "" {
		var err error
		if t.Only, err = regexp.Compile(f.only); err != nil {
			return t, fmt.Errorf("--only: %w", err)
		}
	}
	if f.threads < 0 {
		return t, fmt.Errorf("--threads: found %d, expected 0 or more", f.threads)
	}
	if f.python != "" {
		if _, err := exec.LookPath(f.python); err != nil {
			return t, fmt.Errorf("--python: %w", err)
		}
	}
	return t, nil
}

// suite makes the RunE of a benchmark.
func (a *app) suite(f *suiteFlags, run func(ctx context.Context, t bench.Turns) (*bench.Report, error)) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, _ []string) error {
		t, err := f.turns(a, commandLine(c))
		if err != nil {
			return fmt.Errorf("bench %s: %w", c.Name(), err)
		}
		running, progress := work{}, t.Progress
		t.Progress = func(done, total int) {
			running.begun.Store(true)
			progress(done, total)
		}
		report, err := run(c.Context(), t)
		a.close()
		if err != nil {
			err = running.failed(fmt.Errorf("bench %w", err))
		}
		if report != nil && len(report.Rows) > 0 {
			report.Command = commandLine(c)
			if t.Save != nil { // with the peaks of the end
				err = errors.Join(err, t.Save(report))
			}
			err = errors.Join(err, a.printReport(report, &f.report))
		}
		return err
	}
}

// measured explains the figures.
const measured = `Printed are the median, the 10th and the 90th percentile of the samples, 10^9
operations and bytes a second by the median, and their share of the peak that this
machine reaches in matrix products of that precision and in reading memory, both
measured first. A run that is interrupted prints what it has measured.`

func (a *app) benchKernels() *cobra.Command {
	var f suiteFlags
	var shrink int
	c := &cobra.Command{
		Use:   "kernels",
		Short: "Measure matrix products and what is bound by the memory, one by one",
		Long: `Measure operations one by one: the matrix products of a layer of 2,048 channels and
of its adapters, forward and backward, for 1 to 2,048 rows, in f32, in f32 from bf16
weights, in bf16, and in f32 from int8 and nf4 weights; softmax, norms, activations, the
loss, AdamW, dropout and conversions on 64 MiB; attention.

With --python torch and numpy (OpenBLAS, where it is built with it) make the same
products in turn, and torch attention; ours are held against them.

` + measured,
		Example: `  lorafuse bench kernels
  lorafuse bench kernels --only 'x·Wᵀ: .*bf16' --threads 1 --json
  lorafuse bench kernels --python .venv/bin/python --markdown > bench.md`,
		Args: args(0),
		RunE: a.suite(&f, func(ctx context.Context, t bench.Turns) (*bench.Report, error) {
			return kernels.Run(ctx, kernels.Options{Turns: t, Backend: f.backend, Threads: f.threads, Shrink: shrink, Python: f.python})
		}),
	}
	f.flags(c, 9, "Python with torch and numpy to measure as well")
	shrinkFlag(c, &shrink)
	return c
}

func shrinkFlag(c *cobra.Command, shrink *int) {
	c.Flags().IntVar(shrink, "shrink", 1, "divide all sizes, for a quick look")
}

// measureStepCommand makes one round of bench step in a process of its own.
const measureStepCommand = "measure-step"

func (a *app) measureStep() *cobra.Command {
	return &cobra.Command{
		Use:    measureStepCommand + " ORDER",
		Short:  "Make one round of bench step",
		Hidden: true,
		Args:   args(1, "ORDER"),
		RunE:   func(c *cobra.Command, args []string) error { return step.Measure(c.Context(), a.out, args[0]) },
	}
}

func (a *app) benchStep() *cobra.Command {
	var f suiteFlags
	var o step.Options
	c := &cobra.Command{
		Use:   "step",
		Short: "Measure training steps, their memory and how soon they begin",
		Long: `Measure training steps of models of random weights with adapters on all linear layers
but the head, in f32 from bf16 weights and in bf16: the median step of each round, the
most memory of its process, and the time from the start of the process to its first
step. Operations a second count 4 for each weight and token, and attention: what no
program can do without. The share of the peak is that of this ceiling. --quantize adds
bases that are made smaller on load.

With --python torch, transformers and PEFT train the same models on the same rows in
turn, in f32, and in bf16 under autocast with a bf16 base.

` + measured,
		Example: `  lorafuse bench step
  lorafuse bench step --size small,wide --python .venv/bin/python --markdown > bench.md
  lorafuse bench step --quantize int8,nf4 --only bf16
  lorafuse bench step --size tiny --runs 1 --json`,
		Args: args(0),
		RunE: a.suite(&f, func(ctx context.Context, t bench.Turns) (*bench.Report, error) {
			self, err := os.Executable()
			if err != nil {
				return nil, &failure{fmt.Errorf("step: %w", err)}
			}
			o.Self = []string{self, "bench", measureStepCommand}
			o.Turns, o.Backend, o.Threads, o.Python = t, f.backend, f.threads, f.python
			return step.Run(ctx, o)
		}),
	}
	f.flags(c, 3, "Python with torch, transformers and peft to measure as well")
	c.Flags().Lookup("runs").Usage = "rounds, each of them a new process"
	c.Flags().StringSliceVar(&o.Sizes, "size", []string{"small"}, sizesUsage)
	c.Flags().StringSliceVar(&o.Quantize, "quantize", nil, "measure bases that are quantised on load as well: int8, nf4")
	c.Flags().IntVar(&o.Steps, "steps", 10, "timed steps of a round, after 2 that are not")
	c.Flags().IntVar(&o.Rank, "rank", 16, "rank of the adapters")
	c.Flags().IntVar(&o.Batch, "batch", 0, "rows of a step, 0 is 4 for small, 1 for wide and large")
	c.Flags().IntVar(&o.Length, "length", 0, "tokens of a row, 0 is 256 for small, 512 for wide and large")
	c.Flags().StringVar(&o.Dir, "dir", "", modelsUsage)
	return c
}

func (a *app) benchDecode() *cobra.Command {
	var f suiteFlags
	var o decoding.Options
	c := &cobra.Command{
		Use:   "decode",
		Short: "Measure generating text, token by token, and reading prompts",
		Long: `Measure generating with models of random weights in bf16: a token behind texts of 64
to 4,096 tokens, with an adapter of rank 16 on all linear layers that is not merged and
without one, and from weights that are made int8 and nf4 on load; reading a prompt of
512 tokens, in f32 from bf16 weights and in bf16. Beside them stands a loop that reads
the weights, where they are mapped, and does nothing else. Bytes are those of the
weights, the adapter and the keys and values before a token.

With --llama-python llama.cpp generates in turn, with the same shapes in bf16 and
q8_0; scripts/bench_decode/build.sh builds it. With --python transformers and PEFT do.

` + measured,
		Example: `  lorafuse bench decode
  sh scripts/bench_decode/build.sh output/bench-llama
  lorafuse bench decode --size small,large --llama-python output/bench-llama/bin/python
  lorafuse bench decode --contexts 64,1024 --only 'One token' --json`,
		Args: args(0),
		RunE: a.suite(&f, func(ctx context.Context, t bench.Turns) (*bench.Report, error) {
			if o.LlamaPython != "" {
				if _, err := exec.LookPath(o.LlamaPython); err != nil {
					return nil, fmt.Errorf("decode: --llama-python: %w", err)
				}
			}
			o.Turns, o.Backend, o.Threads, o.Python = t, f.backend, f.threads, f.python
			return decoding.Run(ctx, o)
		}),
	}
	f.flags(c, 5, "Python with torch, transformers and peft to measure as well")
	c.Flags().StringVar(&o.LlamaPython, "llama-python", "", "Python with llama-cpp-python to measure as well")
	c.Flags().StringSliceVar(&o.Sizes, "size", []string{"small"}, sizesUsage)
	c.Flags().IntSliceVar(&o.Contexts, "contexts", []int{64, 256, 1024, 2048, 4096}, "tokens before those that are generated")
	c.Flags().IntVar(&o.Tokens, "tokens", 32, "tokens that are generated for one sample")
	c.Flags().IntVar(&o.Prompt, "prompt", 512, "tokens of the prompt that is read")
	c.Flags().IntVar(&o.Rank, "rank", 16, "rank of the adapter")
	c.Flags().StringVar(&o.Dir, "dir", "", modelsUsage)
	return c
}

func (a *app) benchUpload() *cobra.Command {
	var f suiteFlags
	var o upload.Options
	c := &cobra.Command{
		Use:   "upload",
		Short: "Measure how weights get to a GPU",
		Long: `Measure how the weights of a model get from their file, in the page cache, to the
memory of a device: as models are loaded, and in each of the ways that --load names,
beside the rate at which the device copies pinned memory. The CPU uses weights where
they are mapped.

Printed are the median, the 10th and the 90th percentile of the samples, and 10^9 bytes
a second by the median. A run that is interrupted prints what it has measured.`,
		Example: "  lorafuse bench upload --backend cuda\n  lorafuse bench upload --backend cuda --size qwen-7b --runs 3 --json",
		Args:    args(0),
		RunE: a.suite(&f, func(ctx context.Context, t bench.Turns) (*bench.Report, error) {
			o.Turns, o.Backend, o.Threads = t, f.backend, f.threads
			return upload.Run(ctx, o)
		}),
	}
	f.flags(c, 5, "")
	c.Flags().StringSliceVar(&o.Sizes, "size", []string{"large"}, sizesUsage)
	c.Flags().StringVar(&o.Dir, "dir", "", modelsUsage)
	return c
}

const (
	sizesUsage  = "models: tiny, small (28M weights), wide (154M), large (1.1G), qwen-0.5b, qwen-7b, llama-8b (for GPUs)"
	modelsUsage = "folder in which the models are made (default: the temporary folder)"
)

func (a *app) benchLayer() *cobra.Command {
	var f suiteFlags
	var shrink int
	c := &cobra.Command{
		Use:   "layer",
		Short: "Measure linear layers with LoRA adapters",
		Long: `Measure what an adapter costs: linear layers with adapters of rank 8, 16 and 64, with
dropout and without, forward and backward, compared with the frozen layer alone and with
the same products one by one; and adapters alone, (x A B)·s. Weights are bf16, products
f32 or bf16.

` + measured,
		Example: `  lorafuse bench layer
  lorafuse bench layer --python .venv/bin/python --only 'Adapter alone' --threads 1`,
		Args: args(0),
		RunE: a.suite(&f, func(ctx context.Context, t bench.Turns) (*bench.Report, error) {
			return layer.Run(ctx, layer.Options{Turns: t, Backend: f.backend, Threads: f.threads, Shrink: shrink, Python: f.python})
		}),
	}
	f.flags(c, 9, "Python with torch to measure as well")
	shrinkFlag(c, &shrink)
	return c
}
