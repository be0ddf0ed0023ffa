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
	c.Flags().IntVar(&f.runs, "runs", runs, "samples per row, after one warm-up")
	c.Flags().StringVar(&f.only, "only", "", "regular expression that selects rows by \"group: program: operation, data\"")
	c.Flags().StringVar(&f.save, "save", "", "file that receives the results so far as JSON during the run")
	if python != "" {
		c.Flags().StringVar(&f.python, "python", "", python)
	}
}

func (f *suiteFlags) device(c *cobra.Command) {
	c.Flags().IntVar(&f.threads, "threads", 0, "threads of the CPU backend and of other programs; 0 means one per core")
	c.Flags().StringVar(&f.backend, "backend", backend.Auto, "device: "+backend.Choices)
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
const measured = `The output has the median, the 10th and the 90th percentile of the samples, the rate at
the median in 10^9 operations and bytes per second, and its share of the peak. The peaks
of matrix multiplication in each precision and of memory reads are measured first. An
interrupted run prints the rows measured so far.`

func (a *app) benchKernels() *cobra.Command {
	var f suiteFlags
	var shrink int
	c := &cobra.Command{
		Use:   "kernels",
		Short: "Benchmark matrix multiplications and attention",
		Long: `Measure single operations: the matrix multiplications of a layer with 2,048 channels and
of its adapters, forward and backward, for 1 to 2,048 rows, in f32, in f32 from bf16
weights, in bf16, and in f32 from int8 and nf4 weights; and attention.

With --python, torch and numpy (OpenBLAS, if numpy is built with it) run the same matrix
multiplications interleaved, and torch also attention; the output compares with them.

` + measured,
		Example: `  lorafuse bench kernels
  lorafuse bench kernels --only 'x·Wᵀ: .*bf16' --threads 1 --json
  lorafuse bench kernels --python .venv/bin/python --markdown > bench.md`,
		Args: args(0),
		RunE: a.suite(&f, func(ctx context.Context, t bench.Turns) (*bench.Report, error) {
			return kernels.Run(ctx, kernels.Options{Turns: t, Backend: f.backend, Threads: f.threads, Shrink: shrink, Python: f.python})
		}),
	}
	f.flags(c, 9, "Python with torch and numpy, for comparison")
	f.device(c)
	shrinkFlag(c, &shrink)
	return c
}

func shrinkFlag(c *cobra.Command, shrink *int) {
	c.Flags().IntVar(shrink, "shrink", 1, "divisor of all sizes, for a quick look")
}

// measureStepCommand makes one round of bench step in a process of its own.
const measureStepCommand = "measure-step"

func (a *app) measureStep() *cobra.Command {
	return &cobra.Command{
		Use:    measureStepCommand + " ORDER",
		Short:  "Run one round of bench step",
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
		Short: "Benchmark training steps, memory and startup time",
		Long: `Measure training steps of models with random weights and adapters on all linear layers
except the head, in f32 from bf16 weights and in bf16: the median step of each round,
the peak memory of its process, and the time from the start of the process to its first
step. The rate and its share of the peak count 4 operations per weight and token, plus
attention: the minimum for any program. --quantize adds base models quantized on load.

With --python, torch, transformers and PEFT train the same models on the same rows,
interleaved, in f32, and in bf16 under autocast with a bf16 base model.

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
	f.flags(c, 3, "Python with torch, transformers and peft, for comparison")
	f.device(c)
	c.Flags().Lookup("runs").Usage = "rounds, each of them a new process"
	c.Flags().StringSliceVar(&o.Sizes, "size", []string{"small"}, sizesUsage)
	c.Flags().StringSliceVar(&o.Quantize, "quantize", nil, "also measure base models quantized on load: int8, nf4")
	c.Flags().IntVar(&o.Steps, "steps", 10, "timed steps per round, after 2 warm-up steps")
	c.Flags().IntVar(&o.Rank, "rank", 16, "adapter rank")
	c.Flags().IntVar(&o.Batch, "batch", 0, "rows per step; 0 means 4 for small, 1 for wide and large")
	c.Flags().IntVar(&o.Length, "length", 0, "tokens per row; 0 means 256 for small, 512 for wide and large")
	c.Flags().StringVar(&o.Dir, "dir", "", modelsUsage)
	return c
}

func (a *app) benchDecode() *cobra.Command {
	var f suiteFlags
	var o decoding.Options
	c := &cobra.Command{
		Use:   "decode",
		Short: "Benchmark decoding and prefill",
		Long: `Measure generation with models of random weights in bf16: decoding one token after
contexts of 64 to 4,096 tokens, with and without an unmerged adapter of rank 16 on all
linear layers, and with weights quantized to int8 and nf4 on load; and prefill of a
prompt of 512 tokens, in f32 from bf16 weights and in bf16. A loop that only reads the
mapped weights is measured for comparison. Byte counts include the weights, the adapter
and the KV cache.

With --llama-python, llama.cpp generates with the same shapes in bf16 and q8_0,
interleaved; scripts/bench_decode/build.sh builds it. --python does the same for
transformers and PEFT.

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
	f.flags(c, 5, "Python with torch, transformers and peft, for comparison")
	f.device(c)
	c.Flags().StringVar(&o.LlamaPython, "llama-python", "", "Python with llama-cpp-python, for comparison")
	c.Flags().StringSliceVar(&o.Sizes, "size", []string{"small"}, sizesUsage)
	c.Flags().IntSliceVar(&o.Contexts, "contexts", []int{64, 256, 1024, 2048, 4096}, "context lengths in tokens")
	c.Flags().IntVar(&o.Tokens, "tokens", 32, "tokens generated per sample")
	c.Flags().IntVar(&o.Prompt, "prompt", 512, "prompt length for prefill, in tokens")
	c.Flags().IntVar(&o.Rank, "rank", 16, "adapter rank")
	c.Flags().StringVar(&o.Dir, "dir", "", modelsUsage)
	return c
}

func (a *app) benchUpload() *cobra.Command {
	var f suiteFlags
	var o upload.Options
	c := &cobra.Command{
		Use:   "upload",
		Short: "Benchmark uploading weights to a GPU",
		Long: `Measure how fast the weights of a model are uploaded from a file in the page cache to
the memory of a device: as models are loaded, and with each method of --load, compared
with the rate of copies from pinned memory. The CPU uses mapped weights in place.

The output has the median, the 10th and the 90th percentile of the samples, and the rate
at the median in 10^9 bytes per second. An interrupted run prints the rows measured so
far.`,
		Example: "  lorafuse bench upload --backend cuda\n  lorafuse bench upload --backend cuda --size qwen-7b --runs 3 --json",
		Args:    args(0),
		RunE: a.suite(&f, func(ctx context.Context, t bench.Turns) (*bench.Report, error) {
			o.Turns, o.Backend, o.Threads = t, f.backend, f.threads
			return upload.Run(ctx, o)
		}),
	}
	f.flags(c, 5, "")
	f.device(c)
	c.Flags().StringSliceVar(&o.Sizes, "size", []string{"large"}, sizesUsage)
	c.Flags().StringVar(&o.Dir, "dir", "", modelsUsage)
	return c
}

const (
	sizesUsage  = "models: tiny, small (28M weights), wide (154M), large (1.1G), qwen-0.5b, qwen-7b, llama-8b (for GPUs)"
	modelsUsage = "folder for the models (default: the temporary folder)"
)

func (a *app) benchLayer() *cobra.Command {
	var f suiteFlags
	var shrink int
	c := &cobra.Command{
		Use:   "layer",
		Short: "Benchmark linear layers with LoRA adapters",
		Long: `Measure the cost of an adapter: linear layers with adapters of rank 8, 16 and 64, with
and without dropout, forward and backward, compared with the frozen layer. Weights are
bf16; matrix multiplications are f32 or bf16.

` + measured,
		Example: `  lorafuse bench layer
  lorafuse bench layer --only 'bf16.*r=16' --threads 1`,
		Args: args(0),
		RunE: a.suite(&f, func(ctx context.Context, t bench.Turns) (*bench.Report, error) {
			return layer.Run(ctx, layer.Options{Turns: t, Backend: f.backend, Threads: f.threads, Shrink: shrink})
		}),
	}
	f.flags(c, 9, "")
	f.device(c)
	shrinkFlag(c, &shrink)
	return c
}
