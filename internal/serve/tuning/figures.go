package tuning

import (
	"time"

	"github.com/lorafuse/lorafuse/internal/serve/store"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/events"
)

// mostFigures is the approximate maximum number of step events of a job.
const mostFigures = 2000

// flushInterval is the maximum time that metrics are buffered before they are written.
const flushInterval = time.Second

// step records a finished step.
func (u *underway) step(r train.Report) {
	now := time.Now()
	u.mu.Lock()
	first := !u.reported
	if first { // events from this step on belong to an interrupted run
		u.reported = true
		u.began, u.beganAt = now, r.Step
		u.figures = nil
		if err := u.service.update(func(t *store.Tx) error { return u.service.forgetMetrics(t, u.id, r.Step) }); err != nil {
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
	if first {
		u.goesOn(r.Step - 1)
	}
	if late {
		u.flush()
	}
}

func figuresOf(r train.Report) *Metrics {
	m := &Metrics{Step: r.Step, Steps: r.Steps, Loss: finite(r.Loss), LearningRate: finite(r.LearningRate), GradNorm: finite(r.GradNorm), TokensPerSecond: finite(r.TokensPerSecond)}
	if r.Eval != nil {
		m.ValidLoss = finite(*r.Eval)
	}
	for _, s := range r.Metrics {
		if s.Name == events.RewardAccuracy {
			m.Accuracy = finite(s.Value)
		}
	}
	if r.Accuracy != nil {
		m.ValidAccuracy = finite(*r.Accuracy)
	}
	return m
}

// flush writes the buffered events.
func (u *underway) flush() {
	u.flushing.Lock() // keeps the batches of concurrent calls in order
	defer u.flushing.Unlock()
	u.mu.Lock()
	figures := u.figures
	u.figures, u.flushed = nil, time.Now()
	u.mu.Unlock()
	if len(figures) == 0 {
		return
	}
	if err := u.service.update(func(t *store.Tx) error { return u.service.tell(t, u.id, figures...) }); err != nil {
		u.service.options.Logger.Warn("figures of a job are lost", "job", u.id, "error", err)
	}
}

// flush writes the buffered events of a job.
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
	if err := u.service.update(func(t *store.Tx) error { return u.service.tell(t, u.id, e) }); err != nil {
		u.service.options.Logger.Warn("an event of a job is lost", "job", u.id, "error", err)
	}
}

// estimate returns the estimated end of the job, or 0 if unknown.
func (u *underway) estimate() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.finish.IsZero() {
		return 0
	}
	return u.finish.Unix()
}
