package tuning

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/lorafuse/lorafuse/internal/serve/store"
	"github.com/lorafuse/lorafuse/internal/train"
)

// mostCheckpoints is the maximum number of epochs of a job that are served, including the last.
const mostCheckpoints = 3

// isServed reports whether the checkpoint of a step is served. These are the steps at the end of
// the last mostCheckpoints epochs, and of about ten epochs spread over the job.
func (u *underway) isServed(step int) bool {
	const before = 10
	epochs := *u.job.Settled.Epochs
	each := u.last.Steps / epochs
	if each == 0 || step%each != 0 {
		return false
	}
	epoch := step / each
	return epochs-epoch < mostCheckpoints || epoch%((epochs+before-1)/before) == 0
}

// due reports whether to save a checkpoint after a step: if it will be served, or if the last one
// is old.
func (u *underway) due(step int) bool {
	if !u.isServed(step) && time.Since(u.saved) < u.service.options.SaveInterval {
		return false
	}
	u.saved = time.Now()
	u.flush() // so that metrics up to the checkpoint are not lost
	return true
}

// keep serves a saved checkpoint if it is one of those to serve.
func (u *underway) keep(step int, dir string) {
	if u.last.Step == step && u.isServed(step) {
		u.serve(dir, *figuresOf(u.last))
	}
}

// goesOn serves the checkpoint that the run resumes from, if the process ended after saving and
// before serving it.
func (u *underway) goesOn(step int) {
	served := func(c Checkpoint) bool { return c.Metrics.Step == step }
	if step == 0 || !u.isServed(step) || slices.ContainsFunc(u.job.Checkpoints, served) {
		return
	}
	figures := Metrics{Step: step, Steps: u.last.Steps}
	err := u.service.events.Latest(u.id, 0, func(e Event) bool {
		if e.Metrics == nil || e.Metrics.Step > step {
			return true
		}
		if e.Metrics.Step == step {
			figures = *e.Metrics
		}
		return false
	})
	if err != nil {
		u.service.options.Logger.Warn("the figures of a checkpoint are lost", "job", u.id, "error", err)
	}
	u.serve(filepath.Join(u.service.path(jobsDir, u.id, outputDir), fmt.Sprintf("checkpoint-%d", step)), figures)
}

// serve adds the adapter of a checkpoint as a model.
func (u *underway) serve(dir string, figures Metrics) {
	s, step := u.service, figures.Step
	c := Checkpoint{ID: newID("ftckpt_"), Created: time.Now().Unix(), Model: u.job.checkpointName(step), Metrics: figures}
	m := Model{Name: c.Model, Job: u.id, Owner: u.job.Owner, Dir: fmt.Sprintf("%s-%d", u.id, step), Step: step, Created: c.Created}
	if err := s.keep(train.CheckpointAdapter(dir), m.Dir); err != nil {
		u.tell(message(Warn, "The checkpoint of step %d is not served: %v", step, err))
		return
	}
	s.mu.Lock()
	var gone []Model
	_, err := s.change(u.id, func(t *store.Tx, j *Job) error {
		if j.Status != Running {
			return context.Cause(u.ctx)
		}
		gone = nil
		j.Checkpoints = slices.DeleteFunc(slices.Clone(j.Checkpoints), func(c Checkpoint) bool { return c.Metrics.Step == step })
		j.Checkpoints = append(j.Checkpoints, c)
		for len(j.Checkpoints) > mostCheckpoints-1 {
			old, ok := s.models.Get(j.Checkpoints[0].Model)
			if ok {
				gone = append(gone, old)
			}
			if err := s.models.Remove(t, j.Checkpoints[0].Model); err != nil {
				return err
			}
			j.Checkpoints = j.Checkpoints[1:]
		}
		return s.models.Put(t, m)
	}, message(Info, "Checkpoint created at step %d", step))
	if err != nil {
		gone = []Model{m}
	}
	s.mu.Unlock()
	for _, old := range gone {
		s.forget(old)
	}
}
