package train

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/lorafuse/lorafuse/internal/train/events"
)

const (
	metricsFile    = "metrics.jsonl"
	tensorboardDir = "tensorboard"
)

// openLogs opens the logs. For a resumed run it removes the records after the
// checkpoint.
func (l *loop) openLogs() (err error) {
	after := events.Fresh
	if l.resumed != "" {
		after = int64(l.progress.recorded())
	}
	if l.cfg.Log.Metrics {
		if l.metrics, err = events.OpenMetrics(filepath.Join(l.cfg.OutputDir, metricsFile), after); err != nil {
			return fmt.Errorf("train: %w", err)
		}
	}
	if l.cfg.Log.TensorBoard {
		if l.tensorboard, err = events.OpenTensorBoard(filepath.Join(l.cfg.OutputDir, tensorboardDir), after); err != nil {
			return fmt.Errorf("train: %w", err)
		}
	}
	return nil
}

func (l *loop) closeLogs() error {
	var errs []error
	if l.metrics != nil {
		errs = append(errs, l.metrics.Close())
	}
	if l.tensorboard != nil {
		errs = append(errs, l.tensorboard.Close())
	}
	return errors.Join(errs...)
}

// log records a step, if it is due.
func (l *loop) log(r Report) error {
	var scalars []events.Scalar
	add := func(name string, v float64) { scalars = append(scalars, events.Scalar{Name: name, Value: v}) }
	if l.recorded(r.Step) {
		add(events.Loss, r.Loss)
		add("learning_rate", r.LearningRate)
		add("grad_norm", r.GradNorm)
		scalars = append(scalars, r.Metrics...)
		add("epoch", float64(r.Step)/float64(l.train.StepsPerEpoch()))
		add(r.Unit+"_per_second", r.TokensPerSecond)
		if r.MFU > 0 {
			add("mfu", r.MFU)
		}
		if l.observer.Figures != nil {
			scalars = append(scalars, l.observer.Figures()...)
		}
	}
	if r.Eval != nil {
		scalars = append(scalars, evaluated(*r.Eval, r.Accuracy)...)
	}
	if len(scalars) == 0 {
		return nil
	}
	return l.record(events.Record{Step: int64(r.Step), Scalars: scalars})
}

// evaluated returns the metrics of an evaluation.
func evaluated(loss float64, accuracy *float64) []events.Scalar {
	all := []events.Scalar{{Name: events.EvalLoss, Value: loss}}
	if accuracy != nil {
		all = append(all, events.Scalar{Name: events.EvalAccuracy, Value: *accuracy})
	}
	return all
}

// recorded reports whether a step is logged.
func (l *loop) recorded(step int) bool {
	return step%l.cfg.Log.Steps == 0 || step == 1 || step == l.steps
}

// logPlan records the plan of a new run with a memory budget.
func (l *loop) logPlan() error {
	p := l.fitted
	if p.Budget == 0 || l.resumed != "" {
		return nil
	}
	return l.record(events.Record{Scalars: []events.Scalar{
		{Name: "memory_budget_bytes", Value: float64(p.Budget)}, {Name: "memory_plan_bytes", Value: float64(p.Resident)},
		{Name: "recomputed_layers", Value: float64(p.Recomputed)}, {Name: "micro_batch_rows", Value: float64(p.Rows)},
	}})
}

func (l *loop) record(r events.Record) error {
	if l.metrics != nil {
		if err := l.metrics.Write(r); err != nil {
			return fmt.Errorf("train: %s: %w", metricsFile, err)
		}
	}
	if l.tensorboard != nil {
		if err := l.tensorboard.Write(r); err != nil {
			return fmt.Errorf("train: tensorboard: %w", err)
		}
	}
	return nil
}

// plot draws loss.svg of the whole run and returns its path.
func (l *loop) plot() (string, error) {
	records, err := events.ReadMetrics(filepath.Join(l.cfg.OutputDir, metricsFile))
	if err != nil {
		return "", fmt.Errorf("train: %w", err)
	}
	svg := filepath.Join(l.cfg.OutputDir, "loss.svg")
	switch err := events.PlotLoss(svg, filepath.Base(l.cfg.Model), records); {
	case errors.Is(err, events.ErrNoLoss):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("train: %w", err)
	}
	return svg, nil
}
