package train

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/data"
	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/train/events"
	"github.com/lorafuse/lorafuse/train/schedule"
)

// ErrInterrupted is wrapped where a run was asked to stop; a checkpoint was
// saved before.
var ErrInterrupted = errors.New("interrupted")

// AdapterDir is the folder in output_dir that the trained adapter is saved in.
const AdapterDir = "adapter"

// Summary is what a finished run reports.
type Summary struct {
	Steps           int      `json:"steps"`
	Seconds         float64  `json:"seconds"` // of this process
	Tokens          int64    `json:"tokens"`
	TokensPerSecond float64  `json:"tokens_per_second"`
	FirstLoss       float64  `json:"first_loss"`
	LastLoss        float64  `json:"last_loss"`
	FirstEval       *float64 `json:"first_eval_loss,omitempty"`
	LastEval        *float64 `json:"last_eval_loss,omitempty"`
	EarlyStop       bool     `json:"stopped_early,omitempty"`
	Adapter         string   `json:"adapter"`
	Parameters      int      `json:"trained_parameters"`
	Memory          Memory   `json:"memory"`
	Plan            Plan     `json:"plan"`
	Plot            string   `json:"plot,omitempty"`
	// Load is how the weights came to a device with memory of its own.
	Load *backend.LoadStats `json:"load,omitempty"`
}

// Train runs until the last step, or until ctx ends: then it saves a
// checkpoint and returns ErrInterrupted. Errors: ErrNotFinite.
func (r *Run) Train(ctx context.Context) (*Summary, error) {
	l := &loop{Run: r, begin: time.Now(), first: r.progress.Step}
	var err error
	if l.rates, err = r.cfg.LearningRates(r.steps); err != nil {
		return nil, err
	}
	if err := l.openLogs(); err != nil {
		return nil, err
	}
	if err = l.logPlan(); err == nil {
		err = l.run(ctx)
	}
	if closeErr := l.closeLogs(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, err
	}
	return l.finish()
}

// Close frees what the run holds.
func (r *Run) Close() {
	if r.engine != nil {
		r.engine.Close()
	}
	if r.dev != nil {
		r.dev.Close()
	}
	if r.model != nil {
		r.model.Close()
	}
}

// loop is a run under way.
type loop struct {
	*Run
	rates   *schedule.Schedule
	begin   time.Time
	first   int // step that this process began at
	tokens  int64
	last    float64 // loss
	stopped bool
	batch   data.Batch

	metrics     *events.Metrics
	tensorboard *events.TensorBoard
}

func (l *loop) run(ctx context.Context) error {
	if l.progress.Step == 0 && l.eval != nil && l.cfg.EvalAtStart {
		loss, err := l.evaluate(ctx)
		if err != nil {
			return l.interrupted(ctx, err)
		}
		l.progress.FirstEval, l.progress.LastEval = &loss, &loss
		if err := l.record(events.Record{Scalars: []events.Scalar{{Name: events.EvalLoss, Value: loss}}}); err != nil {
			return err
		}
		l.observer.note("eval     loss %.4f before the first step", loss)
	}
	for l.progress.Step < l.steps && !l.stopped {
		if err := l.step(ctx); err != nil {
			return l.interrupted(ctx, err)
		}
		done := l.progress.Step
		if l.cfg.SaveSteps > 0 && done%l.cfg.SaveSteps == 0 && done < l.steps {
			if err := l.save(); err != nil {
				return err
			}
		}
		if ctx.Err() != nil && done < l.steps {
			return l.interrupted(ctx, ctx.Err())
		}
	}
	return nil
}

// interrupted saves a checkpoint of the last whole step when ctx has ended.
func (l *loop) interrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if l.progress.Step == l.first && l.resumed != "" || l.progress.Step == 0 {
		return fmt.Errorf("train: %w before a new step was done: %w", ErrInterrupted, context.Cause(ctx))
	}
	if err := l.save(); err != nil {
		return fmt.Errorf("train: %w, and the checkpoint could not be saved: %w", ErrInterrupted, err)
	}
	return fmt.Errorf("train: %w after step %d of %d; go on with --resume", ErrInterrupted, l.progress.Step, l.steps)
}

// step is one optimizer step, with what follows it.
func (l *loop) step(ctx context.Context) error {
	began, step, flops := time.Now(), l.progress.Step, 0
	for micro := range l.train.Micros(step) {
		if err := l.train.Fill(&l.batch, step, micro); err != nil {
			return err
		}
		flops += l.flops(len(l.batch.Tokens()))
		// Cut micro-batches have no dropout to draw for.
		draw := uint32(step*l.cfg.GradientAccumulationSteps + micro)
		if err := l.engine.Accumulate(ctx, &l.batch, draw); err != nil {
			return err
		}
	}
	lr := l.rates.At(step)
	// An update that has begun is brought to its end.
	s, err := l.engine.Update(context.WithoutCancel(ctx), l.train.LossTokens(step), l.progress.Updates+1, lr)
	if err := l.notFinite(err); err != nil {
		return err
	}
	n := l.train.Tokens(step)
	l.progress.Step++
	l.progress.Tokens += int64(n)
	l.tokens += int64(n)
	l.last = s.Loss
	if step == 0 {
		l.progress.FirstLoss = s.Loss
	}
	report := Report{
		Step: l.progress.Step, Steps: l.steps, Loss: s.Loss, GradNorm: s.GradNorm, LearningRate: lr,
		TokensPerSecond: float64(n) / time.Since(began).Seconds(), FlopsPerSecond: float64(flops) / time.Since(began).Seconds(), Tokens: l.tokens,
	}
	if d, ok := l.dev.(backend.Rated); ok {
		if peak := d.Rated().FlopsPerSecond; peak > 0 {
			report.MFU = report.FlopsPerSecond / peak
		}
	}
	if l.evalDue() {
		loss, err := l.evaluate(ctx)
		if err != nil {
			return err
		}
		report.Eval = &loss
		l.judge(loss)
	}
	if l.observer.Step != nil {
		l.observer.Step(report)
	}
	return l.log(report)
}

// flops is the work of a micro-batch, if the step is one that is recorded: to
// count it takes a while.
func (l *loop) flops(tokens int) int {
	if !l.recorded(l.progress.Step + 1) {
		return 0
	}
	return l.engine.Flops(tokens)
}

// notFinite counts steps without a finite loss, as the policy says.
func (l *loop) notFinite(err error) error {
	if err == nil {
		l.progress.Updates++
		l.progress.Skipped = 0
		return nil
	}
	if !errors.Is(err, ErrNotFinite) || l.cfg.OnNaN != "skip" {
		return err
	}
	if l.progress.Skipped++; l.progress.Skipped >= l.cfg.NaNLimit {
		return fmt.Errorf("%w, %d steps in a row (nan_limit)", err, l.progress.Skipped)
	}
	l.observer.note("skipped  %v", err)
	return nil
}

func (l *loop) evalDue() bool {
	if l.eval == nil {
		return false
	}
	every, done := l.cfg.EvalSteps, l.progress.Step
	if every == 0 {
		every = l.train.StepsPerEpoch()
	}
	return done%every == 0 && done < l.steps || done == l.steps && l.cfg.EvalAtEnd
}

// evaluate is the loss over the evaluation set: the sum over all labels
// divided by their number.
func (l *loop) evaluate(ctx context.Context) (float64, error) {
	sum, n := 0.0, 0
	var b data.Batch
	for step := range l.eval.StepsPerEpoch() {
		if err := l.eval.Fill(&b, step, 0); err != nil {
			return 0, err
		}
		loss, err := l.engine.Evaluate(ctx, &b)
		if err != nil {
			return 0, err
		}
		sum += loss
		n += b.LossTokens
	}
	return sum / float64(max(1, n)), nil
}

// judge notes an evaluation and stops a run that no longer gets better.
func (l *loop) judge(loss float64) {
	p, c := &l.progress, l.cfg.EarlyStopping
	p.LastEval = &loss
	if p.FirstEval == nil {
		p.FirstEval = &loss
	}
	if p.BestEval == nil || loss < *p.BestEval-c.MinDelta {
		p.BestEval, p.Waited = &loss, 0
		return
	}
	if p.Waited++; c.Patience > 0 && p.Waited >= c.Patience {
		l.stopped = true
		l.observer.note("stopped  the evaluation loss has not fallen for %d evaluations (early_stopping.patience)", p.Waited)
	}
}

func (l *loop) save() error {
	if l.metrics != nil {
		if err := l.metrics.Sync(); err != nil {
			return fmt.Errorf("train: %w", err)
		}
	}
	path, err := writeCheckpoint(context.Background(), l.cfg.OutputDir, l.engine, l.progress)
	if err != nil {
		return err
	}
	l.observer.note("saved    %s", path)
	if err := prune(l.cfg.OutputDir, l.cfg.SaveLimit); err != nil {
		return fmt.Errorf("train: save_limit: %w", err)
	}
	return nil
}

// finish saves the adapter and draws the loss.
func (l *loop) finish() (*Summary, error) {
	state, err := l.engine.State(context.Background())
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(l.cfg.OutputDir, AdapterDir)
	if err := fsatomic.ReplaceDir(dir, func(tmp string) error { return state.Save(tmp, false) }); err != nil {
		return nil, fmt.Errorf("train: %s: %w", dir, err)
	}
	seconds := time.Since(l.begin).Seconds()
	s := &Summary{
		Steps: l.progress.Step, Seconds: seconds, Tokens: l.progress.Tokens, TokensPerSecond: float64(l.tokens) / seconds,
		FirstLoss: l.progress.FirstLoss, LastLoss: l.last, FirstEval: l.progress.FirstEval, LastEval: l.progress.LastEval,
		EarlyStop: l.stopped, Adapter: dir, Parameters: l.trainableNum, Memory: l.engine.Memory(), Plan: l.plan, Load: l.load(),
	}
	if l.cfg.Log.Plot && l.cfg.Log.Metrics {
		if s.Plot, err = l.plot(); err != nil {
			return nil, err
		}
	}
	return s, nil
}
