package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/load"
	"github.com/lorafuse/lorafuse/safetensors"
)

func (a *app) bench() *cobra.Command {
	var f tablesFlags
	c := a.group(&cobra.Command{
		Use:   "bench",
		Short: "Run performance benchmarks",
		Long: `Measure the performance of this machine and print the results with a description of
the machine.

The suites are subcommands: kernels, layer, step, decode, upload and load. bench with
flags but no subcommand measures everything in docs/benchmarks.md: training steps,
decoding, matrix multiplications, adapters and files. This takes about ten minutes on
two cores, or a quarter of an hour with torch for comparison. --markdown prints the
five tables; --json and --save write the results, one row per line. bench plan measures
nothing: it counts what programs cost on GPUs.

--from prints saved results instead, from this command or from suites with --json, and
from any number of machines. For each row it shows the newest result of each machine.`,
		Example: `  lorafuse bench --markdown
  lorafuse bench --tables step,decode --python .venv/bin/python --save docs/benchmarks/mine.json
  lorafuse bench --markdown --from docs/benchmarks > docs/benchmarks.md
  lorafuse bench --from before.json after.json
  lorafuse bench --quick --tables files
  lorafuse bench kernels --help`,
	})
	names := c.Args
	c.Args = func(c *cobra.Command, args []string) error {
		if f.from != nil {
			return nil // more files
		}
		return names(c, args)
	}
	c.RunE = a.tables(&f)
	f.flags(c)
	c.AddCommand(a.benchKernels(), a.benchLayer(), a.benchStep(), a.benchDecode(), a.benchUpload(), a.benchLoad(), a.benchPlan(), a.measureLoad(), a.measureStep())
	return c
}

func (a *app) benchLoad() *cobra.Command {
	var o load.Options
	var f suiteFlags
	var peers, size string
	c := &cobra.Command{
		Use:   "load",
		Short: "Benchmark opening, reading and writing safetensors files",
		Long: `Measure how fast files are opened, read and written: a model of 218 bf16 tensors
(1,112.8 MB), an adapter of 336 f32 tensors (74.8 MB), and files of 1,000 and 50,000
small tensors for their headers. The files are created in a folder that takes up to
three times --size and is removed afterwards.

Each sample runs in its own process with the files in the page cache; samples of the
rows of a group are interleaved. The output has the median, the 10th and the 90th
percentile of the samples, the rate at the median in 10^9 bytes per second, and the peak
memory of the processes. With --peers other programs are measured in the same run for
comparison; scripts/bench_load/build.sh builds them. An interrupted run prints the rows
measured so far.`,
		Example: `  lorafuse bench load --size 100MB --runs 3
  lorafuse bench load --only 'Header' --json
  sh scripts/bench_load/build.sh output/bench-peers
  lorafuse bench load --peers output/bench-peers --markdown > bench.md`,
		Args: args(0),
		RunE: a.suite(&f, func(ctx context.Context, t bench.Turns) (_ *bench.Report, err error) {
			if o.Size, err = safetensors.ParseSize(size); err != nil {
				return nil, fmt.Errorf("load: --size: %w", err)
			}
			if peers != "" {
				if o.Peers, err = load.ReadPeers(peers); err != nil {
					return nil, fmt.Errorf("load: --peers: %w", err)
				}
			}
			o.Turns = t
			return runLoad(ctx, o)
		}),
	}
	f.flags(c, 9, "")
	c.Flags().Lookup("runs").Usage = "samples per row, each of a new process"
	c.Flags().StringVar(&o.Dir, "dir", "", "folder for the files, on the file system to measure (default: the temporary folder)")
	c.Flags().StringVar(&size, "size", "1112764704", "size of the model file, such as 200MB; the adapter is scaled in proportion")
	c.Flags().StringVar(&peers, "peers", "", "folder of other programs to measure for comparison")
	return c
}

// measureCommand does one operation of a benchmark in a process of its own.
const measureCommand = "measure-load"

func (a *app) measureLoad() *cobra.Command {
	return &cobra.Command{
		Use:    measureCommand + " OP FILE OUT REPEAT",
		Short:  "Run one operation of bench load",
		Hidden: true,
		RunE:   func(_ *cobra.Command, args []string) error { return load.Measure(a.out, args) },
	}
}

// reportFlags select how a benchmark report is printed.
type reportFlags struct{ json, markdown bool }

func (f *reportFlags) flags(c *cobra.Command) {
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	c.Flags().BoolVar(&f.markdown, "markdown", false, "print Markdown")
	c.MarkFlagsMutuallyExclusive("json", "markdown")
}

// printReport prints a report and fails if one of its rows failed.
func (a *app) printReport(r *bench.Report, f *reportFlags) error {
	var err error
	switch {
	case f.json:
		err = a.out.json(r)
	case f.markdown:
		a.out.printf("%s", r.Markdown())
	default:
		a.out.printf("%s\n", r.Environment)
		a.out.table(r.Text())
	}
	return errors.Join(err, failedRows(r))
}
