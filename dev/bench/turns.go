package bench

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// ErrOptions is the error of options that make no sense.
var ErrOptions = errors.New("bad options")

// Sampler takes samples of one operation, in seconds.
type Sampler interface {
	Sample(ctx context.Context) (float64, error)
	Close() error
}

// Task is a row to be measured, with its targets.
type Task struct {
	Row   *Row
	Marks []Mark
	// Begin gets ready for sampling. It may complete the row.
	Begin func(ctx context.Context) (Sampler, error)
	// Foreign is another program: that it fails is said in its row and is no
	// reason to stop.
	Foreign bool
}

// ErrMemory is the error of another program that needs more memory than there is; its row has the text as failure.
var ErrMemory = errors.New("does not fit into memory")

// Turns configures how tasks are measured.
type Turns struct {
	// Runs is the number of samples per row. A first sample for warm-up is discarded, unless the samples are Cold, as
	// in new processes.
	Runs int
	Cold bool
	// Only selects rows by ID; nil selects all.
	Only *regexp.Regexp
	// Settle is the pause before and after samples of another program. Idle threads spin for up to 200 ms (OpenMP's
	// KMP_BLOCKTIME) and would take a core from the next program. New processes need no pause.
	Settle time.Duration
	// Progress is called with the number of samples taken; it may be nil.
	Progress func(done, total int)
	// Save is called with the report whenever rows are added, so that an abort loses no results; it may be nil.
	Save func(*Report) error
	// Between, if not nil, is called before each group, and before a round if the last call was a while ago. It
	// measures the machine itself, as often as its load may change.
	Between func() error
	// KeepGoing treats all tasks like foreign ones: a failure is recorded in the row, and the others are measured.
	KeepGoing bool
	// Peaks holds peaks of the machine that were measured earlier, by the name of the precision; nil if there are
	// none.
	Peaks map[string]Peak

	done, total int
	between     time.Time // when it was called last
	before      *Task     // the task sampled last
}

// Select filters the tasks. Of tasks with the same ID it keeps the first. It fails with ErrOptions if none is left.
func (t *Turns) Select(tasks []Task) ([]Task, error) {
	if t.Runs < 1 {
		return nil, fmt.Errorf("%w: found %d runs, expected 1 or more", ErrOptions, t.Runs)
	}
	seen := map[string]bool{}
	tasks = slices.DeleteFunc(slices.Clone(tasks), func(x Task) bool {
		id := x.Row.ID()
		again := seen[id]
		seen[id] = true
		return again || t.Only != nil && !t.Only.MatchString(id)
	})
	if len(tasks) == 0 {
		return nil, fmt.Errorf("%w: no row matches %q", ErrOptions, t.Only)
	}
	return tasks, nil
}

// Measure samples the tasks. Consecutive tasks of the same group and input alternate and are open at the same time.
// Their rows and marks are added to report when they are done, or when an error stops the measurement: an error of
// ctx, or of a task unless it is foreign or KeepGoing is set.
func (t *Turns) Measure(ctx context.Context, tasks []Task, report *Report) (err error) {
	t.done, t.total = 0, t.Runs*len(tasks)
	group := ""
	for len(tasks) > 0 && err == nil {
		if next := tasks[0].Row.Group; next != group && t.Between != nil {
			group, t.between = next, time.Time{}
		}
		n := slices.IndexFunc(tasks, func(x Task) bool { return x.Row.Group != tasks[0].Row.Group || x.Row.Input != tasks[0].Row.Input })
		if n < 0 {
			n = len(tasks)
		}
		err = t.together(ctx, tasks[:n])
		for i := range tasks[:n] {
			if row := tasks[i].Row; len(row.Seconds) > 0 || row.Failure != "" {
				report.Rows = append(report.Rows, row)
				report.Marks = append(report.Marks, tasks[i].Marks...)
			}
		}
		if err == nil && t.Save != nil {
			err = t.Save(report)
		}
		tasks = tasks[n:]
	}
	return err
}

// while is the minimum interval between calls of Between.
const while = 10 * time.Second

// together measures tasks alternately.
func (t *Turns) together(ctx context.Context, tasks []Task) (err error) {
	samplers := make([]Sampler, len(tasks))
	defer func() {
		for _, s := range samplers {
			if s != nil {
				err = errors.Join(err, s.Close())
			}
		}
	}()
	// failed records an error of a task, whose memory the next ones need, or returns it if it is a reason to stop.
	failed := func(i int, err error) error {
		row := tasks[i].Row
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			return nil
		case !tasks[i].Foreign && !t.KeepGoing:
			return fmt.Errorf("%s: %w", row.ID(), err)
		case samplers[i] != nil:
			err = errors.Join(err, samplers[i].Close())
			samplers[i] = nil
		}
		row.Failure, row.Seconds = err.Error(), nil
		if errors.Is(err, ErrMemory) {
			row.Failure = ErrMemory.Error()
		}
		return nil
	}
	for i := range tasks {
		var err error
		if samplers[i], err = tasks[i].Begin(ctx); err == nil && !t.Cold {
			_, err = t.sample(ctx, &tasks[i], samplers[i])
		}
		if err := failed(i, err); err != nil {
			return err
		}
	}
	for range t.Runs {
		if t.Between != nil && time.Since(t.between) > while {
			if err := t.Between(); err != nil {
				return err
			}
			t.between = time.Now()
		}
		for i := range tasks {
			if row := tasks[i].Row; row.Failure == "" {
				s, err := t.sample(ctx, &tasks[i], samplers[i])
				if err := failed(i, err); err != nil {
					return err
				}
				if row.Failure == "" {
					row.Seconds = append(row.Seconds, s)
				}
			}
			t.done++
			if t.Progress != nil {
				t.Progress(t.done, t.total)
			}
		}
	}
	return nil
}

// sample samples a task once. If another program ran before, it first waits for the machine to settle.
func (t *Turns) sample(ctx context.Context, task *Task, s Sampler) (float64, error) {
	before := t.before
	t.before = task
	foreign := before != nil && before.Row.Program != task.Row.Program && (before.Foreign || task.Foreign)
	if foreign && !t.Cold && t.Settle > 0 {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(t.Settle):
		}
	}
	return s.Sample(ctx)
}

// Repeat returns a Sampler of the mean time of a run, if f runs what is measured n times. Each sample has enough runs to
// take the given duration; the first sample determines their number.
func Repeat(f func(ctx context.Context, n int) error, stretch time.Duration) Sampler {
	return &repeated{f: f, stretch: stretch}
}

type repeated struct {
	f       func(ctx context.Context, n int) error
	stretch time.Duration
	runs    int
}

func (r *repeated) Sample(ctx context.Context) (float64, error) {
	if r.runs > 0 {
		return r.mean(ctx)
	}
	for r.runs = 1; ; r.runs *= 2 {
		mean, err := r.mean(ctx)
		if err != nil || mean*float64(r.runs) >= r.stretch.Seconds() {
			return mean, err
		}
	}
}

func (r *repeated) mean(ctx context.Context) (float64, error) {
	start := time.Now()
	if err := r.f(ctx, r.runs); err != nil {
		return 0, err
	}
	return time.Since(start).Seconds() / float64(r.runs), nil
}

func (r *repeated) Close() error { return nil }
