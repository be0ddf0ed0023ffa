package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench"
	decoding "github.com/lorafuse/lorafuse/dev/bench/decode"
	"github.com/lorafuse/lorafuse/dev/bench/kernels"
	"github.com/lorafuse/lorafuse/dev/bench/layer"
	"github.com/lorafuse/lorafuse/dev/bench/load"
	"github.com/lorafuse/lorafuse/dev/bench/page"
	benchprogram "github.com/lorafuse/lorafuse/dev/bench/program"
	"github.com/lorafuse/lorafuse/dev/bench/step"
	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

// tablesFlags holds the flags of the five tables.
type tablesFlags struct {
	report                         reportFlags
	from, tables                   []string
	save, backend, dir             string
	python, llamaPython, loadPeers string
	threads                        int
	quick                          bool

	peers   map[string][]string // of bench load
	bf16    bool                // makes products faster here
	command string              // as results have it
	done    []*bench.Report
}

func (f *tablesFlags) flags(c *cobra.Command) {
	f.report.flags(c)
	c.Flags().StringArrayVar(&f.from, "from", nil, "print saved results instead of measuring: files, or folders of *.json files; more may follow")
	c.Flags().StringSliceVar(&f.tables, "tables", page.Tables(), "tables to measure")
	c.Flags().StringVar(&f.save, "save", "", "file that receives the results so far as JSON during the run")
	c.Flags().StringVar(&f.python, "python", "", "Python with torch, numpy, transformers and peft, for comparison")
	c.Flags().StringVar(&f.llamaPython, "llama-python", "", "Python with llama-cpp-python, for comparison")
	c.Flags().StringVar(&f.loadPeers, "peers", "", "folder of other programs that read files, for comparison")
	c.Flags().IntVar(&f.threads, "threads", 0, "threads of the CPU backend and of other programs; 0 means one per core")
	c.Flags().StringVar(&f.backend, "backend", backend.Auto, "device: "+backend.Choices)
	c.Flags().StringVar(&f.dir, "dir", "", "folder for models and files (default: the temporary folder)")
	c.Flags().BoolVar(&f.quick, "quick", false, "one sample of the smallest sizes, to try the suites; the results are not representative")
}

// tables makes the RunE of the command that holds the suites: all that the page of
// figures has, or results that were saved.
func (a *app) tables(f *tablesFlags) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, files []string) error {
		if c.Flags().NFlag() == 0 {
			return c.Help()
		}
		measure := a.measureTables
		if f.from != nil {
			measure = func(c *cobra.Command, f *tablesFlags) ([]page.Result, error) { return f.saved(c, files) }
		}
		results, err := measure(c, f)
		if len(results) == 0 {
			return err
		}
		return errors.Join(err, a.printResults(results, &f.report))
	}
}

// saved reads the results that --from names.
func (f *tablesFlags) saved(c *cobra.Command, files []string) ([]page.Result, error) {
	for _, name := range []string{"tables", "save", "python", "llama-python", "peers", "threads", "backend", "dir", "quick"} {
		if c.Flags().Changed(name) {
			return nil, usagef(c.CommandPath(), "--from prints what was measured, --%s is for measuring: expected one of them", name)
		}
	}
	results, err := page.Read(append(slices.Clone(f.from), files...)...)
	if err != nil {
		return nil, fmt.Errorf("bench: --from: %w", err)
	}
	return results, nil
}

// printResults prints reports one after another, or as a page.
func (a *app) printResults(results []page.Result, f *reportFlags) error {
	var reports []*bench.Report
	for _, r := range results {
		reports = append(reports, r.Report)
	}
	switch {
	case f.json:
		return bench.WriteResults(a.out, reports)
	case f.markdown:
		a.out.printf("%s", page.Markdown(results))
		return nil
	}
	for i, r := range reports {
		if i > 0 {
			a.out.printf("\n")
		}
		a.out.printf("%s: %s\n", r.Title, r.Environment)
		a.out.table(r.Text())
	}
	return nil
}

// measureTables measures all requested tables, suite by suite. On an error it returns the reports measured so far.
func (a *app) measureTables(c *cobra.Command, f *tablesFlags) ([]page.Result, error) {
	if err := f.check(); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	f.command = commandLine(c)
	running := work{}
	var err error
	for _, s := range []struct {
		title string
		run   func(context.Context, bench.Turns) (*bench.Report, error)
	}{{"step", f.step}, {"decode", f.decode}, {"kernels", f.kernels}, {"layer", f.layer}, {"load", f.load}} {
		only := page.Only(s.title, f.tables, f.bf16, f.quick)
		if only == nil {
			continue
		}
		t := f.turns(only, func(done, total int) {
			running.begun.Store(true)
			a.progress().Steps("measuring "+s.title, int64(done), int64(total), "")
		})
		var r *bench.Report
		if r, err = s.run(c.Context(), t); r != nil && len(r.Rows) > 0 {
			r.Command = f.command
			f.done = append(f.done, r)
			err = errors.Join(err, f.keep(nil))
		}
		if err != nil {
			err = running.failed(fmt.Errorf("bench: %w", err))
			break
		}
	}
	a.close()
	var results []page.Result
	for _, r := range f.done {
		results = append(results, page.Result{Report: r})
		err = errors.Join(err, failedRows(r))
	}
	return results, err
}

// check checks the flags, and finds out whether bf16 is faster here.
func (f *tablesFlags) check() (err error) {
	if err := page.Check(f.tables); err != nil {
		return fmt.Errorf("--tables: %w", err)
	}
	for _, p := range []struct{ flag, program string }{{"python", f.python}, {"llama-python", f.llamaPython}} {
		if p.program != "" {
			if _, err := exec.LookPath(p.program); err != nil {
				return fmt.Errorf("--%s: %w", p.flag, err)
			}
		}
	}
	if f.loadPeers != "" {
		if f.peers, err = load.ReadPeers(f.loadPeers); err != nil {
			return fmt.Errorf("--peers: %w", err)
		}
	}
	m, err := benchprogram.Open(f.backend, f.threads)
	if err != nil {
		return err
	}
	f.bf16, err = m.GainsByBF16()
	return errors.Join(err, m.Close())
}

// turns returns the sampling settings of a suite.
func (f *tablesFlags) turns(only *regexp.Regexp, progress func(done, total int)) bench.Turns {
	t := bench.Turns{Runs: 5, Only: only, Settle: 250 * time.Millisecond, Save: f.keep, Progress: progress}
	if f.quick {
		t.Runs = 1
	}
	return t
}

// keep writes the results so far: finished reports and the current one.
func (f *tablesFlags) keep(underWay *bench.Report) error {
	if f.save == "" {
		return nil
	}
	reports := slices.Clone(f.done)
	if underWay != nil {
		underWay.Command = f.command
		reports = append(reports, underWay)
	}
	return saveResults(f.save, reports)
}

// saveResults replaces a file by results.
func saveResults(file string, reports []*bench.Report) error {
	err := fsatomic.ReplaceFile(file, func(name string) error {
		out, err := os.Create(name)
		if err != nil {
			return err
		}
		return errors.Join(bench.WriteResults(out, reports), out.Close())
	})
	if err != nil {
		return &failure{fmt.Errorf("--save: %w", err)}
	}
	return nil
}

// sizes returns the model sizes of a suite.
func (f *tablesFlags) sizes(names ...string) []string {
	if f.quick {
		return []string{"tiny"}
	}
	return names
}

func (f *tablesFlags) step(ctx context.Context, t bench.Turns) (*bench.Report, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, &failure{fmt.Errorf("step: %w", err)}
	}
	o := step.Options{
		Turns: t, Self: []string{self, "bench", measureStepCommand}, Python: f.python, Backend: f.backend, Threads: f.threads,
		Sizes: f.sizes("small", "wide"), Quantize: []string{"nf4"}, Rank: 16, Steps: 3, Dir: f.dir,
	}
	o.Runs = min(t.Runs, 3)
	if f.quick {
		o.Steps = 1
	}
	return step.Run(ctx, o)
}

func (f *tablesFlags) decode(ctx context.Context, t bench.Turns) (*bench.Report, error) {
	return decoding.Run(ctx, decoding.Options{
		Turns: t, Backend: f.backend, Threads: f.threads, Sizes: f.sizes("small", "large"), Contexts: []int{64}, Tokens: 32, Prompt: 512, Rank: 16,
		LlamaPython: f.llamaPython, Dir: f.dir, // transformers' figures are slow to get and far behind
	})
}

// shrink divides the sizes of products and layers.
func (f *tablesFlags) shrink() int {
	if f.quick {
		return 64
	}
	return 1
}

func (f *tablesFlags) kernels(ctx context.Context, t bench.Turns) (*bench.Report, error) {
	return kernels.Run(ctx, kernels.Options{Turns: t, Backend: f.backend, Threads: f.threads, Shrink: f.shrink(), Python: f.python})
}

func (f *tablesFlags) layer(ctx context.Context, t bench.Turns) (*bench.Report, error) {
	return layer.Run(ctx, layer.Options{Turns: t, Backend: f.backend, Threads: f.threads, Shrink: f.shrink()})
}

func (f *tablesFlags) load(ctx context.Context, t bench.Turns) (*bench.Report, error) {
	o := load.Options{Turns: t, Peers: f.peers, Dir: f.dir, Size: 300e6}
	if f.quick {
		o.Size = 1e6
	}
	return runLoad(ctx, o)
}

// runLoad measures files, and describes the processor in the report as other suites do.
func runLoad(ctx context.Context, o load.Options) (*bench.Report, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, &failure{fmt.Errorf("load: %w", err)}
	}
	o.Self = []string{self, "bench", measureCommand}
	r, err := load.Run(ctx, o)
	if r != nil {
		if m, err := benchprogram.Open(backend.CPU, 0); err == nil {
			r.Environment.Device = m.Info.Detail
			m.Close()
		}
	}
	return r, err
}

// failedRows returns an error that lists failed rows, or nil.
func failedRows(r *bench.Report) (err error) {
	for _, row := range r.Rows {
		if row.Failure != "" {
			err = errors.Join(err, &failure{fmt.Errorf("bench: %s: %s", row.ID(), row.Failure)})
		}
	}
	return err
}

// places maps flags to placeholders for paths on this machine.
var places = map[string]string{"python": "PY", "llama-python": "LLAMA", "peers": "DIR"}

// commandLine returns the command that reproduces a report, without this machine's paths and without output flags.
func commandLine(c *cobra.Command) string {
	words := []string{c.CommandPath()}
	c.Flags().Visit(func(f *pflag.Flag) {
		value := f.Value.String()
		if many, ok := f.Value.(pflag.SliceValue); ok {
			value = strings.Join(many.GetSlice(), ",")
		}
		switch {
		case f.Name == "json" || f.Name == "markdown" || f.Name == "save" || f.Name == "dir":
		case places[f.Name] != "":
			words = append(words, "--"+f.Name, places[f.Name])
		case f.Value.Type() == "bool":
			words = append(words, "--"+f.Name)
		case f.NoOptDefVal != "":
			words = append(words, "--"+f.Name+"="+quoted(value))
		default:
			words = append(words, "--"+f.Name, quoted(value))
		}
	})
	return strings.Join(words, " ")
}

var plainWord = regexp.MustCompile(`^[\w.,:/@%+=-]+$`)

// quoted quotes a word for a shell.
func quoted(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
