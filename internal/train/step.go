package train

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/train/events"
	"github.com/lorafuse/lorafuse/train/config"
)

// step executes one optimizer step: its gradients and the update.
func (l *loop) step(ctx context.Context) error {
	began, step := time.Now(), l.progress.Step
	flops, err := l.gradients(ctx, step)
	if err != nil {
		return err
	}
	lr := l.rates.At(step)
	// An update always completes, even if ctx ends.
	s, err := l.engine.Update(context.WithoutCancel(ctx), l.train.LossTokens(step), l.progress.Updates+1, lr)
	if err := l.notFinite(err); err != nil {
		return err
	}
	l.account(step, s, lr, began, flops)
	return nil
}

// gradients accumulates the gradients of a step, and returns the number of operations of this
// rank if they are counted.
func (l *loop) gradients(ctx context.Context, step int) (flops int, err error) {
	if l.group != nil {
		return l.sharedGradients(ctx, step)
	}
	for micro := range l.train.Micros(step) {
		n, err := l.accumulate(ctx, step, micro)
		if err != nil {
			return 0, err
		}
		flops += n
	}
	return flops, nil
}

// accumulate adds the gradients of one micro-batch, and returns its number of operations.
func (l *loop) accumulate(ctx context.Context, step, micro int) (flops int, err error) {
	if err := l.train.Fill(&l.batch, step, micro); err != nil {
		return 0, err
	}
	l.batch.StepTokens = l.train.LossTokens(step)
	// Cut micro-batches have no dropout to draw for.
	draw := uint32(step*l.cfg.GradientAccumulationSteps + micro)
	return l.flops(&l.batch), l.engine.Accumulate(ctx, &l.batch, draw)
}

// account adds a finished step to the progress; its evaluation and its record are still
// pending.
func (l *loop) account(step int, s Step, lr float64, began time.Time, flops int) {
	p, n, seconds := &l.progress, l.train.Tokens(step), time.Since(began).Seconds()
	p.Step++
	p.Tokens += int64(n)
	l.tokens += int64(n)
	if p.Skipped == 0 { // else the loss may have no value
		p.LastLoss = s.Loss
		if p.Updates == 1 {
			p.FirstLoss = s.Loss
		}
	}
	p.Pending = &pending{
		Loss: number(s.Loss), GradNorm: number(s.GradNorm), LearningRate: number(lr),
		TokensPerSecond: number(float64(n) / seconds), FlopsPerSecond: number(float64(flops) / seconds),
	}
	for _, mean := range s.Means {
		p.Pending.Means = append(p.Pending.Means, number(mean))
	}
	l.ahead = true
}

// complete finishes a step after the update: it evaluates if necessary, reports and
// records.
func (l *loop) complete(ctx context.Context) error {
	s := l.progress.Pending
	report := Report{
		Step: l.progress.Step, Steps: l.steps, Loss: float64(s.Loss), GradNorm: float64(s.GradNorm), LearningRate: float64(s.LearningRate),
		TokensPerSecond: float64(s.TokensPerSecond), FlopsPerSecond: float64(s.FlopsPerSecond), Tokens: l.tokens, Unit: l.train.Unit(),
	}
	if loss := l.engine.opts.Loss; loss.Metrics != nil && len(s.Means) == loss.Sums {
		report.Metrics = loss.Metrics(s.means())
	}
	if peak := l.rated.FlopsPerSecond; peak > 0 {
		report.MFU = report.FlopsPerSecond / peak
	}
	if l.evalDue() {
		loss, accuracy, err := l.evaluate(ctx)
		if err != nil {
			return err
		}
		report.Eval, report.Accuracy = &loss, accuracy
	}
	if l.observer.Step != nil {
		l.observer.Step(report)
	}
	if err := l.log(report); err != nil {
		return err
	}
	if after := l.material.After; after != nil {
		done := Done{Step: report.Step, Last: report.Step == l.steps, Adapter: l.engine.planner.slot, Image: l.recordImage, Text: l.recordText}
		if err := l.group.Do(ctx, func(ctx context.Context) error {
			if !l.group.Leads() {
				return nil
			}
			return after(ctx, done)
		}); err != nil {
			return err
		}
	}
	if report.Eval != nil {
		l.progress.Accuracy = report.Accuracy
		value := *report.Eval
		if l.cfg.BestMetric != events.EvalLoss {
			value = *report.Accuracy
		}
		l.judge(*report.Eval, value)
		if err := l.saveBest(value); err != nil {
			return err
		}
	}
	l.progress.Pending, l.ahead = nil, true
	return nil
}

// flops returns the number of operations of a micro-batch if the step is recorded,
// since counting them takes time.
func (l *loop) flops(b *data.Batch) int {
	if !l.recorded(l.progress.Step + 1) {
		return 0
	}
	return l.engine.Flops(b)
}

// notFinite applies the policy for steps without a finite loss and counts them.
func (l *loop) notFinite(err error) error {
	if err == nil {
		l.progress.Updates++
		l.progress.Skipped = 0
		return nil
	}
	if !errors.Is(err, ErrNotFinite) || l.cfg.OnNaN != config.SkipNaN {
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

// evaluate returns the loss over the evaluation set (the sum over all labels divided by
// their number), and the accuracy, if the task has one: of rows, or of the tokens with labels.
func (l *loop) evaluate(ctx context.Context) (loss float64, accuracy *float64, err error) {
	sum, n, right := 0.0, 0, 0
	batches := l.eval.StepsPerEpoch()
	for first := 0; first < batches; first += l.group.Size() {
		var own [3]float64
		if i := first + l.group.Rank(); i < batches {
			own, err = l.evaluateBatch(ctx, i)
		}
		all, err := l.group.Round(ctx, l.rescue, own[:], err)
		if err != nil {
			return 0, nil, err
		}
		for _, x := range all { // in the order of the batches; ranks without one give zeros
			sum += x[0]
			n, right = n+int(x[1]), right+int(x[2])
		}
	}
	n = max(1, n)
	if l.engine.opts.Loss.HasAccuracy() {
		accuracy = new(float64(right) / float64(n))
	}
	return sum / float64(n), accuracy, nil
}

// evaluateBatch returns the loss of one batch of the evaluation set, summed over its labels,
// the number of labels, and the number of correct ones.
func (l *loop) evaluateBatch(ctx context.Context, i int) (own [3]float64, err error) {
	var b data.Batch
	if err := l.eval.Fill(&b, i, 0); err != nil {
		return own, err
	}
	loss, right, err := l.engine.evaluate(ctx, &b)
	return [3]float64{loss, float64(b.LossTokens), float64(right)}, err
}

// evaluateFirst evaluates before the first step if requested.
func (l *loop) evaluateFirst(ctx context.Context) error {
	p := &l.progress
	if p.Step > 0 || l.eval == nil || !l.cfg.EvalAtStart {
		return nil
	}
	loss, accuracy, err := l.evaluate(ctx)
	if err != nil {
		return err
	}
	if err := l.record(events.Record{Scalars: evaluated(loss, accuracy)}); err != nil {
		return err
	}
	p.FirstEval = new(number(loss))
	p.LastEval, p.Accuracy = p.FirstEval, accuracy
	if accuracy != nil {
		l.observer.note("eval     loss %.4f, accuracy %.1f %% before the first step", loss, 100**accuracy)
	} else {
		l.observer.note("eval     loss %.4f before the first step", loss)
	}
	return nil
}

// judge records an evaluation with its loss and its value of best_metric, which may stop the run.
func (l *loop) judge(loss, value float64) {
	p, c := &l.progress, l.cfg.EarlyStopping
	p.LastEval = new(number(loss))
	if p.FirstEval == nil {
		p.FirstEval = p.LastEval
	}
	if better(l.cfg.BestMetric, value, (*float64)(p.BestEval), c.MinDelta) {
		p.BestEval, p.Waited = new(number(value)), 0
		return
	}
	if p.Waited++; p.stopped(c.Patience) {
		l.observer.note("stopped  %s has not improved for %d evaluations (early_stopping.patience)", l.cfg.BestMetric, p.Waited)
	}
}
