package tuning

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/lorafuse/lorafuse/train"
)

// saveInterval is the most training that a crash can lose.
const saveInterval = time.Minute

// mostFigures is about how many steps of a job have an event.
const mostFigures = 2000

// flushInterval is how long figures wait to be written together.
const flushInterval = time.Second

// underway is a job that is being worked on.
type underway struct {
	service *Service
	id      string
	ctx     context.Context
	stop    context.CancelCauseFunc

	// Of the run, whose goroutine alone has them.
	job      Job // as it was when the run began
	last     train.Report
	saved    time.Time // when a checkpoint was last asked for
	reported bool

	mu       sync.Mutex
	figures  []Event // that are not written yet
	flushed  time.Time
	finish   time.Time // estimated
	began    time.Time // the first step has ended
	beganAt  int       // that step
	flushing sync.Mutex
}

// train runs jobs, one after the other.
func (s *Service) train(t Trainer) {
	for u := s.next(Queued, Running); u != nil; u = s.next(Queued, Running) {
		if err := caught(func() error { return u.train(t) }); err != nil && u.ctx.Err() == nil {
			u.fail(err)
		}
		u.flush()
		s.done(u)
	}
}

// train runs the job from where it is to its end, or until it is stopped.
func (u *underway) train(t Trainer) error {
	s := u.service
	s.mu.Lock()
	before := *s.jobs[u.id]
	begins := message(Info, "Fine-tuning job started")
	if before.Status == Running {
		begins = message(Info, "The server has started again: the job goes on from its last checkpoint")
	}
	j, err := s.change(u.id, func(_ *txn, j *Job) error {
		if j.Status != Queued && j.Status != Running {
			return context.Cause(u.ctx)
		}
		j.Status = Running
		return nil
	}, begins)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.options.Logger.Info("a fine-tuning job begins", "job", u.id, "rows", j.Rows, "method", j.Request.Method)
	u.job = j
	summary, err := u.run(t)
	if errors.Is(err, train.ErrCheckpoint) {
		u.tell(message(Warn, "The job begins anew, because it cannot go on from its checkpoint: %v", err))
		if err := os.RemoveAll(s.path(jobsDir, u.id, outputDir)); err != nil {
			return err
		}
		u.reported = false
		summary, err = u.run(t)
	}
	if err != nil {
		return err
	}
	return u.succeed(summary)
}

func (u *underway) run(t Trainer) (*train.Summary, error) {
	c, err := u.service.config(&u.job)
	if err != nil {
		return nil, err
	}
	u.saved = time.Now()
	r, err := t.New(u.ctx, c, train.Observer{Step: u.step, Save: u.due, Saved: u.keep})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.Train(u.ctx)
}

// step notes a finished step.
func (u *underway) step(r train.Report) {
	now := time.Now()
	u.mu.Lock()
	if !u.reported { // what was known of this step and of later ones is of a run that was cut
		u.reported = true
		u.began, u.beganAt = now, r.Step
		u.figures = nil
		if err := u.service.store.update(func(t *txn) error { return t.forgetMetrics(u.id, r.Step) }); err != nil {
			u.service.options.Logger.Warn("figures of a job may be there twice", "job", u.id, "error", err)
		}
	} else if done := r.Step - u.beganAt; done > 0 {
		u.finish = now.Add(now.Sub(u.began) / time.Duration(done) * time.Duration(r.Steps-r.Step))
	}
	u.last = r
	every := max(1, r.Steps/mostFigures)
	if r.Step%every == 0 || r.Step == r.Steps || r.Eval != nil {
		u.figures = append(u.figures, figuresOf(r).event())
	}
	late := now.Sub(u.flushed) > flushInterval
	u.mu.Unlock()
	if late {
		u.flush()
	}
}

func figuresOf(r train.Report) *Metrics {
	m := &Metrics{Step: r.Step, Steps: r.Steps, Loss: finite(r.Loss), LearningRate: finite(r.LearningRate), GradNorm: finite(r.GradNorm), TokensPerSecond: finite(r.TokensPerSecond)}
	if r.Eval != nil {
		m.ValidLoss = finite(*r.Eval)
	}
	if r.Rewards != nil {
		m.Accuracy = finite(r.Rewards.Accuracy)
	}
	if r.Accuracy != nil {
		m.ValidAccuracy = finite(*r.Accuracy)
	}
	return m
}

// flush writes the figures that wait.
func (u *underway) flush() {
	u.flushing.Lock() // so that those of two calls stay in order
	defer u.flushing.Unlock()
	u.mu.Lock()
	figures := u.figures
	u.figures, u.flushed = nil, time.Now()
	u.mu.Unlock()
	if len(figures) == 0 {
		return
	}
	if err := u.service.store.update(func(t *txn) error { return t.appendEvents(u.id, figures...) }); err != nil {
		u.service.options.Logger.Warn("figures of a job are lost", "job", u.id, "error", err)
	}
}

// flush writes the figures of a job that wait.
func (s *Service) flush(id string) {
	s.mu.Lock()
	u := s.runs[id]
	s.mu.Unlock()
	if u != nil {
		u.flush()
	}
}

// tell adds an event.
func (u *underway) tell(e Event) {
	u.flush()
	if err := u.service.store.update(func(t *txn) error { return t.appendEvents(u.id, e) }); err != nil {
		u.service.options.Logger.Warn("an event of a job is lost", "job", u.id, "error", err)
	}
}

// estimate is when the job will have ended, 0 where nothing is known.
func (u *underway) estimate() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.finish.IsZero() {
		return 0
	}
	return u.finish.Unix()
}

// mostCheckpoints is how many epochs of a job can be asked for, the last one among them.
const mostCheckpoints = 3

// isServed tells whether a step is the last of an epoch that can be asked for: of the last
// ones, and of those before that where there are few.
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

// due tells whether a checkpoint is to be saved after a step: where it is one that can be
// asked for, and when the last one is old.
func (u *underway) due(step int) bool {
	if !u.isServed(step) && time.Since(u.saved) < saveInterval {
		return false
	}
	u.saved = time.Now()
	u.flush() // the figures of its steps do not come again
	return true
}

// keep serves a checkpoint that is whole on the disk, where it is one to be asked for.
func (u *underway) keep(step int, dir string) {
	if u.last.Step != step || !u.isServed(step) {
		return
	}
	s := u.service
	c := Checkpoint{ID: newID("ftckpt_"), Created: time.Now().Unix(), Model: u.job.checkpointName(step), Metrics: *figuresOf(u.last)}
	m := Model{Name: c.Model, Job: u.id, Owner: u.job.Owner, Dir: fmt.Sprintf("%s-%d", u.id, step), Step: step, Created: c.Created}
	if err := s.keep(train.CheckpointAdapter(dir), m.Dir); err != nil {
		u.tell(message(Warn, "The checkpoint of step %d is not served: %v", step, err))
		return
	}
	s.mu.Lock()
	var gone []Model
	_, err := s.change(u.id, func(t *txn, j *Job) error {
		if j.Status != Running {
			return context.Cause(u.ctx)
		}
		gone = nil
		j.Checkpoints = slices.DeleteFunc(slices.Clone(j.Checkpoints), func(c Checkpoint) bool { return c.Metrics.Step == step })
		j.Checkpoints = append(j.Checkpoints, c)
		for len(j.Checkpoints) > mostCheckpoints-1 {
			old, ok := s.models[j.Checkpoints[0].Model]
			if ok {
				gone = append(gone, old)
			}
			if err := t.remove(modelBucket, j.Checkpoints[0].Model); err != nil {
				return err
			}
			j.Checkpoints = j.Checkpoints[1:]
		}
		return t.put(modelBucket, m.Name, m)
	}, message(Info, "Checkpoint created at step %d", step))
	if err == nil {
		s.models[m.Name] = m
		for _, old := range gone {
			delete(s.models, old.Name)
		}
	} else {
		gone = []Model{m}
	}
	s.mu.Unlock()
	for _, old := range gone {
		s.forget(old)
	}
}

// succeed keeps what a run has made.
func (u *underway) succeed(summary *train.Summary) error {
	s := u.service
	if err := s.keep(summary.Adapter, u.id); err != nil {
		return err
	}
	u.flush()
	result, err := s.results(u.job.Owner, filepath.Join(s.path(jobsDir, u.id, outputDir), "metrics.jsonl"))
	if err != nil {
		return err
	}
	taken := s.taken()
	m := Model{Job: u.id, Owner: u.job.Owner, Dir: u.id, Created: time.Now().Unix()}
	if m.Name = u.job.Name; taken(m.Name) { // since the job was made
		m.Name += "-" + u.job.tag()
	}
	s.mu.Lock()
	_, err = s.change(u.id, func(t *txn, j *Job) error {
		if j.Status != Running {
			return context.Cause(u.ctx)
		}
		j.Status, j.Finished, j.Name, j.Tuned, j.TrainedTokens = Succeeded, m.Created, m.Name, m.Name, summary.Tokens
		last := Checkpoint{ID: newID("ftckpt_"), Created: m.Created, Model: m.Name, Metrics: *figuresOf(u.last)}
		last.Metrics.Step = summary.Steps
		j.Checkpoints, j.ResultFiles = append(slices.Clone(j.Checkpoints), last), []string{result.ID}
		if err := t.putFile(&result); err != nil {
			return err
		}
		return t.put(modelBucket, m.Name, m)
	}, message(Info, "New fine-tuned model created: %s", m.Name), message(Info, "The job has successfully completed"))
	if err == nil {
		s.models[m.Name], s.files[result.ID] = m, result
	}
	s.mu.Unlock()
	if err != nil {
		s.forget(m)
		return errors.Join(err, os.Remove(s.path(filesDir, result.ID)))
	}
	s.options.Logger.Info("a fine-tuning job has succeeded", "job", u.id, "model", m.Name, "steps", summary.Steps, "tokens", summary.Tokens)
	if _, err := s.registry.Load(u.ctx, m.Name, s.path(adaptersDir, m.Dir)); err != nil {
		u.tell(message(Warn, "The model is not loaded yet, and will be when it is asked for: %v", err))
	}
	return nil
}
