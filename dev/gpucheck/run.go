package gpucheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Options configures Run.
type Options struct {
	From string // folder of the pack
	Out  string // folder of the report
	// Tree is a checkout of the repository, for a pack that has no files of it.
	Tree string
	// Only are the names of the steps that are run; none for all. The device is
	// always looked for.
	Only []string
	// Part is the part whose steps are run, counted from 1; 0 means all. A part takes at most eight minutes.
	Part int
	// Continue is the report of an earlier run, whose completed steps are not run again; it may be empty.
	Continue string
	// Limit is the time limit of the whole run; steps that remain are not run. Zero means no limit, or the limit of
	// the part.
	Limit time.Duration
	// Small has everything run in sizes that only show that it runs.
	Small bool
	// Log receives progress messages; it may be nil.
	Log io.Writer
}

// Errors of a check: steps have failed; there was no device; the time for all
// steps was up before all were run.
var (
	ErrSteps      = errors.New("steps have failed")
	ErrNothing    = errors.New("nothing was checked")
	ErrUnfinished = errors.New("the time for all steps was up")
)

// runner is the state of a run.
type runner struct {
	Options
	pack      *Pack
	work      string // the unpacked pack
	tree      string // the files that tests read
	temp      string // for output files of steps
	driver    string
	sanitizer string
	profiler  string
	report    *Report
	log       *os.File
	deadline  time.Time // zero for none
}

// Run unpacks a pack, runs its steps, and writes the report before and after each step. Errors: ErrSteps, ErrNothing,
// ErrUnfinished, and errors that prevent the run.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.Part > 0 && o.Limit == 0 {
		o.Limit = MostCall
	}
	r := &runner{Options: o, sanitizer: findSanitizer(), profiler: findProfiler()}
	if o.Limit > 0 {
		r.deadline = time.Now().Add(o.Limit)
	}
	for _, name := range []*string{&r.Out, &r.Continue} { // steps have folders of their own
		if *name != "" {
			if *name, err = filepath.Abs(*name); err != nil {
				return nil, err
			}
		}
	}
	if err := os.MkdirAll(r.Out, 0o777); err != nil {
		return nil, err
	}
	if r.log, err = os.OpenFile(filepath.Join(r.Out, LogFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.log.Close()) }()
	if r.work, err = os.MkdirTemp("", "lorafuse-gpucheck-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.work)) }()
	if r.temp = filepath.Join(r.work, "temp"); os.Mkdir(r.temp, 0o777) != nil {
		return nil, fmt.Errorf("no folder %s", r.temp)
	}
	if err := r.unpack(); err != nil {
		return nil, err
	}
	if err := r.findTree(); err != nil {
		return nil, err
	}
	missing := r.chooseDriver(ctx)
	steps := r.steps()
	if err := r.begin(steps); err != nil {
		return nil, err
	}
	for i := range steps {
		if err := r.take(ctx, &steps[i], missing); err != nil {
			return r.report, err
		}
		if ctx.Err() != nil {
			return r.report, ctx.Err()
		}
	}
	switch {
	case r.report.Count(Failed) > 0:
		return r.report, fmt.Errorf("%w: %d", ErrSteps, r.report.Count(Failed))
	case r.report.Count(Passed) == 0:
		return r.report, fmt.Errorf("%w: %s", ErrNothing, r.report.Steps[0].Reason)
	case slices.ContainsFunc(r.report.Steps, func(x Result) bool { return x.Reason == ErrUnfinished.Error() }):
		return r.report, fmt.Errorf("%w: go on from %s", ErrUnfinished, filepath.Join(r.Out, JSONFile))
	}
	return r.report, nil
}

func (r *runner) unpack() (err error) {
	f, err := os.Open(filepath.Join(r.From, ArchiveFile))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := ReadArchive(f, r.work); err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	r.pack, err = readPack(r.work)
	return err
}

// findTree finds the files that tests read: in the pack, or in a checkout.
func (r *runner) findTree() (err error) {
	if r.tree = filepath.Join(r.work, treeFolder); fileExists(r.tree) {
		return nil
	}
	if r.tree, err = filepath.Abs(r.Tree); err == nil && !fileExists(filepath.Join(r.tree, "go.mod")) {
		err = fmt.Errorf("the pack has no files of the repository, and %s has no go.mod: name a checkout", r.tree)
	}
	return err
}

func fileExists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// begin creates an empty report, or continues an earlier one.
func (r *runner) begin(steps []step) error {
	if most := steps[len(steps)-1].part; r.Part < 0 || r.Part > most {
		return fmt.Errorf("found part %d, expected one of 1 to %d", r.Part, most)
	}
	known := []string{}
	r.report = &Report{Title: "lorafuse on a GPU", Date: time.Now().UTC().Truncate(time.Second), Commit: r.pack.Commit, Pack: r.pack.Built,
		Driver: r.driver, GPU: askGPU(), Host: host(), Small: r.Small}
	for i := range steps {
		s := &steps[i]
		known = append(known, s.name)
		r.report.Steps = append(r.report.Steps, Result{Name: s.name, What: s.what, Part: s.part, Status: NotRun})
	}
	for _, name := range r.Only {
		if !slices.Contains(known, name) {
			return fmt.Errorf("found step %q, expected one of %s", name, strings.Join(known, ", "))
		}
	}
	if r.Continue != "" {
		old, err := ReadReport(r.Continue)
		if err != nil {
			return err
		}
		if err := r.report.goOn(old); err != nil {
			return fmt.Errorf("%s: %w", r.Continue, err)
		}
	}
	return r.report.Write(r.Out)
}

// take runs a step, if requested, and writes the report.
func (r *runner) take(ctx context.Context, s *step, missing error) error {
	x := r.report.result(s.name)
	if !r.wants(s, x) {
		return nil
	}
	*x = Result{Name: s.name, What: s.what, Part: s.part, Date: time.Now().UTC().Truncate(time.Second)}
	why := s.skip
	if s.name == first && missing != nil {
		why = missing.Error()
	} else if d := r.report.result(first); s.name != first && d.Status != Passed {
		why = "no device: " + d.Reason
	}
	if why == "" {
		why = r.lacks(s)
	}
	if why == "" && s.begin != nil {
		why = s.begin()
	}
	if mostTime > 0 {
		s.limit = min(s.limit, mostTime)
	}
	left := s.limit
	if !r.deadline.IsZero() {
		left = min(left, time.Until(r.deadline))
	}
	switch {
	case why != "":
		x.Status, x.Reason = Skipped, why
	case left < leastTime:
		x.Status, x.Reason = NotRun, ErrUnfinished.Error()
	default:
		x.Status, x.Reason = Interrupted, "it was begun, and never ended"
		if err := r.report.Write(r.Out); err != nil {
			return err
		}
		if s.kind == benchmark && s.name != peaksStep {
			s.args = append(s.args, r.peaks()...)
		}
		fmt.Fprintf(r.Log, "%s: %s\n", s.name, s.what)
		r.run(ctx, s, x, left)
	}
	fmt.Fprintf(r.Log, "%s: %s %s\n", s.name, x.Status, x.said())
	return r.report.Write(r.Out)
}

// lacks returns the program of a step that the pack lacks, or "": some packs hold only benchmarks, others only tests.
func (r *runner) lacks(s *step) string {
	for _, name := range s.args {
		if filepath.Dir(name) == filepath.Join(r.work, binFolder) && !fileExists(name) {
			return "the pack has no " + filepath.Base(name)
		}
	}
	return ""
}

// wants reports whether a step should run.
func (r *runner) wants(s *step, x *Result) bool {
	switch {
	case s.name == first:
		return true
	case len(r.Only) > 0:
		return slices.Contains(r.Only, s.name)
	}
	return x.Status == NotRun && (r.Part == 0 || r.Part == s.part)
}

// leastTime is the minimum remaining time to start a step; tests shorten the times of steps to mostTime.
const leastTime = 500 * time.Millisecond

var mostTime time.Duration

// run runs the program of a step and evaluates its output.
func (r *runner) run(ctx context.Context, s *step, x *Result, left time.Duration) {
	fmt.Fprintf(r.log, "\n== %s: %s\n", s.name, strings.Join(s.args, " "))
	limited, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	c := exec.CommandContext(limited, s.args[0], s.args[1:]...)
	c.Dir = s.folder
	if c.Dir == "" {
		c.Dir = r.work
	}
	c.Env = append(os.Environ(), append(s.env, EnvLibrary+"="+r.driver, "LORAFUSE_CUDA_TEST=1", "TMPDIR="+r.temp)...)
	stdout, last := &output{}, &tail{}
	c.Stdout, c.Stderr = io.MultiWriter(stdout, last, r.log), io.MultiWriter(last, r.log)
	alone(c)
	c.WaitDelay = 5 * time.Second // for its remaining output, and for child processes that it left
	began := time.Now()
	err := r.watch(c, s, x, stdout)
	x.Seconds = time.Since(began).Seconds()
	x.Status, x.Reason = Passed, ""
	switch {
	case err == nil:
	case ctx.Err() != nil:
		x.Status, x.Reason = Interrupted, "the check was ended"
	case limited.Err() != nil && left < s.limit:
		x.Status, x.Reason = Interrupted, ErrUnfinished.Error()
	case limited.Err() != nil:
		x.Status, x.Reason = Failed, fmt.Sprintf("it was ended after %v", left)
	default:
		x.Status, x.Reason = Failed, err.Error()
	}
	s.read(r, x, stdout.bytes())
	if x.Status != Passed && x.Status != Skipped {
		x.Tail = last.String()
	}
}

// read extracts the results of the step from its output.
func (s *step) read(r *runner, x *Result, raw []byte) {
	fail := func(err error) {
		if err != nil && x.Status == Passed {
			x.Status, x.Reason = Failed, err.Error()
		}
	}
	switch s.kind {
	case devices:
		if x.Status != Passed {
			return
		}
		device, missing, err := describe(raw)
		if r.report.Device = device; device != "" {
			missing = r.pack.fits(device)
		}
		if fail(err); missing != "" {
			x.Status, x.Reason = Skipped, missing
		}
	case tests:
		if x.Tests, x.Margins = count(raw), margins(raw); x.Tests.Passed+x.Tests.Failed == 0 {
			fail(errors.New("no test has run"))
		}
		fail(s.missing(raw))
	case sanitizing:
		if x.Tests = count(raw); x.Tests.Passed+x.Tests.Failed == 0 {
			x.Tests = nil
		}
		fail(s.missing(raw))
		// A program that cannot be instrumented has not been checked, whatever it printed.
		if unable := regexp.MustCompile(`(?i)device not supported|insufficient privileges`).Find(raw); unable != nil {
			x.Status, x.Reason = Skipped, "compute-sanitizer: "+string(unable)
		}
	case benchmark:
		b, err := readBenchmark(raw)
		if err != nil {
			fail(err)
			b = s.saved()
		}
		x.Bench = b
	case counting:
		var err error
		x.Counters, err = counters(raw)
		fail(err)
	}
}

// missing returns an error if the output lacks a required mention, so that a kernel under test was not launched.
func (s *step) missing(raw []byte) error {
	for _, name := range s.mentions {
		if !bytes.Contains(raw, []byte(name)) {
			return fmt.Errorf("it has launched no kernel %s…", name)
		}
	}
	return nil
}

var verdict = regexp.MustCompile(`(?m)^\s*--- (PASS|FAIL|SKIP): (\S+)`)

// count counts the verdicts of go test -v: of tests that have none below them,
// and the names of all that failed.
func count(raw []byte) *Tests {
	t := &Tests{}
	all := verdict.FindAllSubmatch(raw, -1)
	parents := map[string]bool{}
	for _, m := range all {
		for name := string(m[2]); ; {
			i := strings.LastIndexByte(name, '/')
			if i < 0 {
				break
			}
			name = name[:i]
			parents[name] = true
		}
	}
	for _, m := range all {
		if parents[string(m[2])] {
			continue
		}
		switch string(m[1]) {
		case "PASS":
			t.Passed++
		case "SKIP":
			t.Skipped++
		default:
			t.Failed++
			t.Names = append(t.Names, string(m[2]))
		}
	}
	return t
}
