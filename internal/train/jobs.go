package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/ranks"
	"github.com/lorafuse/lorafuse/train/config"
)

// Jobs holds several opened runs on one model in memory. They are trained concurrently:
// each has its own loop, from its data to its checkpoints. Micro-batches of several
// loops are computed together if that leaves every bit unchanged, otherwise one after
// the other. Each job produces the same adapter as if it ran alone.
type Jobs struct {
	jobs   []*job
	dev    backend.Device
	model  *model.Model
	base   *Base  // of both
	mixed  *mixed // passes shared by jobs, or nil
	memory Memory

	group  *ranks.Group // of ranks that share the jobs, or nil
	shared []config.Job // of all ranks
	single *Run         // the part of this rank in a job that several share, or nil
	number int          // of that job
	others []*Jobs      // of rank 0: the other ranks of this process
}

// job is one run of several.
type job struct {
	*Run
	prepared
	name    string
	company company
	outcome Outcome
}

// Outcome is the result of a job: its summary or its error.
type Outcome struct {
	Name    string
	Summary *Summary
	Err     error
}

// MarshalJSON writes the error as text.
func (o Outcome) MarshalJSON() ([]byte, error) {
	text := ""
	if o.Err != nil {
		text = o.Err.Error()
	}
	return json.Marshal(struct {
		Name    string   `json:"name"`
		Summary *Summary `json:"summary,omitempty"`
		Error   string   `json:"error,omitempty"`
	}{o.Name, o.Summary, text})
}

// NewJobs opens the runs of a configuration with jobs. observe returns the observer of
// the named job; for an empty name, it returns the common observer, whose Profile is
// used. With several devices, each trains jobs of its own, or shares them if they are fewer.
func NewJobs(ctx context.Context, c *config.Config, observe func(name string) Observer) (*Jobs, error) {
	indices, err := selected(c)
	if err != nil {
		return nil, err
	}
	if len(indices) > 1 {
		return newJobsOnDevices(ctx, c, indices, observe)
	}
	return openJobs(ctx, c, observe, func(config.Job) bool { return true })
}

// DryRunJobs plans the runs of a configuration with jobs, like DryRun, and returns the
// memory of all of them. A job without an output folder uses a folder in missing.
func DryRunJobs(ctx context.Context, c *config.Config, missing string, observe func(name string) Observer) (Memory, error) {
	j, err := openJobs(ctx, c, observe, func(job config.Job) bool {
		if _, err := os.Stat(job.OutputDir); errors.Is(err, fs.ErrNotExist) {
			job.Config.OutputDir = filepath.Join(missing, job.Name)
		}
		return false
	})
	if err != nil {
		return Memory{}, err
	}
	defer j.Close()
	return j.memory, nil
}

// openJobs opens all jobs in this process, on one device.
func openJobs(ctx context.Context, c *config.Config, observe func(name string) Observer, lock func(config.Job) bool) (*Jobs, error) {
	each, err := jobsOf(c, observe)
	if err != nil {
		return nil, err
	}
	indices, err := selected(c)
	if err != nil {
		return nil, err
	}
	j, index := &Jobs{}, 0
	if len(indices) > 0 {
		index = indices[0]
	}
	if err = j.open(ctx, each[0].Config, index, observe("")); err == nil {
		err = j.openAll(ctx, each, observe, lock)
	}
	if err != nil {
		j.Close()
		return nil, err
	}
	return j, nil
}

// jobsOf returns the jobs of a configuration.
func jobsOf(c *config.Config, observe func(name string) Observer) ([]config.Job, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	each, err := c.JobConfigs()
	if err != nil {
		return nil, err
	}
	if len(each) == 0 {
		return nil, fmt.Errorf("train: jobs: %w: found none", ErrOption)
	}
	return each, restartJobs(each, observe)
}

// openAll opens the given jobs on the base, and loads their programs.
func (j *Jobs) openAll(ctx context.Context, each []config.Job, observe func(name string) Observer, lock func(config.Job) bool) (err error) {
	all := observe("")
	for _, own := range each {
		locks := lock(own)
		x := &job{Run: j.base.run(own.Config, observe(own.Name)), name: own.Name}
		x.outcome.Name = own.Name
		j.jobs = append(j.jobs, x)
		if err := x.gather(ctx, locks); err != nil {
			return inJob(own.Name, err)
		}
		if x.prepared, err = x.prepare(ctx); err != nil {
			return inJob(own.Name, err)
		}
	}
	if err := j.load(ctx, all); err != nil {
		return err
	}
	for _, x := range j.jobs {
		if err := x.begin(ctx, x.prepared); err != nil {
			return inJob(x.name, err)
		}
	}
	j.describe(all)
	return nil
}

// restartJobs makes jobs without a checkpoint start from the beginning when others
// resume. It fails if no job has a checkpoint.
func restartJobs(each []config.Job, observe func(job string) Observer) error {
	if each[0].Config.Resume == "" {
		return nil
	}
	var without []config.Job
	var dirs []string
	for _, job := range each {
		path, err := LatestCheckpoint(job.Config.OutputDir)
		if err != nil {
			return inJob(job.Name, err)
		}
		if path == "" {
			without, dirs = append(without, job), append(dirs, job.Config.OutputDir)
		}
	}
	if len(without) == len(each) {
		return nothingToResume(dirs...)
	}
	for _, job := range without {
		observe(job.Name).note("note     no checkpoint in output_dir %s to resume from: the job starts a new run", job.Config.OutputDir)
		job.Config.Resume = ""
	}
	return nil
}

// describe reports the jobs before training begins.
func (j *Jobs) describe(all Observer) {
	common := *j.jobs[0].Run
	common.observer = all
	common.describeModel()
	common.describeMemory(j.memory)
	for _, x := range j.jobs {
		x.describeOwn()
		if x.resumed != "" {
			x.observer.note("resume   %s, step %d of %d", x.resumed, x.progress.Step, x.steps)
		}
	}
	if m := j.mixed; m != nil {
		all.note("jobs     %d, %d of them in passes of at most %d tokens", len(j.jobs), len(m.numbers), m.most)
	} else if j.group == nil {
		all.note("jobs     %d, one after the other", len(j.jobs))
	}
}

// open opens the model and the device.
func (j *Jobs) open(ctx context.Context, c *config.Config, index int, o Observer) error {
	s := &Setup{cfg: c, observer: o, index: index}
	dir, err := s.Resolve(ctx)
	if err != nil {
		return err
	}
	err = s.OpenModel(dir, model.AsSaved, model.NextToken)
	if j.model = s.model; err != nil {
		return err
	}
	if j.dev, err = s.OpenDevice(); err != nil {
		return err
	}
	j.base = NewBase(host.Open(j.dev, j.model), dir)
	return nil
}

// Memory returns the memory plan of all jobs together.
func (j *Jobs) Memory() Memory { return j.memory }

// Device returns the device of the jobs.
func (j *Jobs) Device() backend.Info {
	if j.single != nil {
		return j.single.Device()
	}
	return j.dev.Info()
}

// Train runs all jobs to their last steps, or until ctx ends: then each has saved a
// checkpoint, and the error is ErrInterrupted. Errors of jobs are reported by job name;
// a failed job does not affect the others.
func (j *Jobs) Train(ctx context.Context) ([]Outcome, error) {
	var all []Outcome
	if j.group == nil {
		all = j.trainOwn(ctx)
	} else {
		ranks := append([]*Jobs{j}, j.others...)
		outcomes, errs := make([][]Outcome, len(ranks)), make([]error, len(ranks))
		each(ranks, func(rank int, j *Jobs) { outcomes[rank], errs[rank] = j.trainRank(ctx) })
		if err := firstOf(errs); err != nil {
			return outcomes[0], err
		}
		all = outcomes[0]
	}
	var failed failures
	for _, x := range all {
		if x.Err != nil {
			failed = append(failed, inJob(x.Name, x.Err))
		}
	}
	if len(failed) == 0 {
		return all, nil
	}
	if !j.group.Leads() {
		return all, fmt.Errorf("%w: %w", ErrElsewhere, failed)
	}
	return all, failed
}

// trainOwn trains the jobs of this process on its device.
func (j *Jobs) trainOwn(ctx context.Context) (all []Outcome) {
	live := slices.Clone(j.jobs)
	for _, x := range live {
		next, stop := iter.Pull(func(yield func(struct{}) bool) {
			x.company.yield = yield
			x.outcome.Summary, x.outcome.Err = x.Run.Train(ctx)
		})
		defer stop()
		x.company.next = next
	}
	for {
		live = slices.DeleteFunc(live, func(x *job) bool { _, waits := x.company.next(); return !waits })
		if len(live) == 0 {
			break
		}
		j.accumulate(ctx, live)
	}
	for _, x := range j.jobs {
		all = append(all, x.outcome)
	}
	return all
}

// inJob adds the name of the job to an error.
func inJob(name string, err error) error { return fmt.Errorf("job %s: %w", name, err) }

// failures are the errors of jobs.
type failures []error

// Error returns a single line.
func (f failures) Error() string {
	var all []string
	for _, err := range f {
		all = append(all, err.Error())
	}
	return strings.Join(all, "; ")
}

// Unwrap returns all errors.
func (f failures) Unwrap() []error { return f }

// accumulate computes the micro-batches that loops wait for.
func (j *Jobs) accumulate(ctx context.Context, live []*job) {
	var fused []*job
	for _, x := range live {
		if x.company.fused {
			fused = append(fused, x)
			continue
		}
		x.company.err = x.engine.accumulate(ctx, x.company.batch, x.company.draw)
	}
	for len(fused) > 0 {
		fused = j.mixed.take(fused)
		err := j.mixed.run(ctx)
		for _, x := range j.mixed.taken {
			x.company.err = err
		}
	}
}

// Close frees the memory of the jobs and unlocks their output folders.
func (j *Jobs) Close() {
	for _, other := range j.others {
		other.Close()
	}
	if j.single != nil {
		j.single.Close()
	}
	for _, x := range j.jobs {
		x.Run.Close()
		if x.engine == nil && x.planner != nil {
			x.planner.slot.Free()
		}
	}
	if j.base != nil {
		j.base.host.Close()
	}
	if j.dev != nil {
		j.dev.Close()
	}
	if j.model != nil {
		j.model.Close()
	}
}

// company connects a job's loop to the scheduler of the jobs: the loop is suspended
// while a micro-batch is computed.
type company struct {
	next  func() (struct{}, bool) // has the loop go on until it waits again, or is at its end
	yield func(struct{}) bool

	batch *data.Batch // the requested micro-batch
	draw  uint32
	err   error // error of the computation

	fused bool    // in passes with others,
	loss  float32 // in which the losses of rows are summed up here
}

// errStopped: the loop waits for a micro-batch, but the jobs have been stopped.
var errStopped = errors.New("train: the jobs have stopped")

// wait suspends the loop until the micro-batch is computed.
func (c *company) wait(b *data.Batch, draw uint32) error {
	c.batch, c.draw = b, draw
	if !c.yield(struct{}{}) {
		return errStopped
	}
	return c.err
}
