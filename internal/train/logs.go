package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/lorafuse/lorafuse/internal/train/events"
	"github.com/lorafuse/lorafuse/train/config"
)

const (
	metricsFile    = "metrics.jsonl"
	tensorboardDir = "tensorboard"
	mlflowFile     = "mlflow.json"
	mlflowName     = "mlflow"
)

// A tracker receives the records of a run. A tracker with WriteImage and WriteText also receives
// samples, and one with End the status of the run before it is closed.
type tracker interface {
	Write(r events.Record) error
	Sync() error // before a checkpoint
	Close() error
}

// sampleTracker is a tracker of samples.
type sampleTracker interface {
	WriteImage(x events.Image) error
	WriteText(x events.Text) error
}

// trackers lists the trackers that a configuration can select. open opens the log for the steps
// after the given one, see [events.OpenMetrics].
var trackers = []struct {
	name     string
	selected func(c *config.Log) bool
	open     func(l *loop, after int64) (tracker, error)
}{
	{metricsFile, func(c *config.Log) bool { return c.Metrics }, func(l *loop, after int64) (tracker, error) {
		return events.OpenMetrics(filepath.Join(l.cfg.OutputDir, metricsFile), after)
	}},
	{"tensorboard", func(c *config.Log) bool { return c.TensorBoard }, func(l *loop, after int64) (tracker, error) {
		return events.OpenTensorBoard(filepath.Join(l.cfg.OutputDir, tensorboardDir), after)
	}},
	{mlflowName, func(c *config.Log) bool { return c.MLflow }, openMLflow},
}

// openLog is a tracker in use.
type openLog struct {
	tracker
	name string
}

// openLogs opens the selected trackers. For a resumed run they remove the records after the
// checkpoint.
func (l *loop) openLogs() error {
	after := events.Fresh
	if l.resumed != "" {
		after = int64(l.progress.recorded())
	}
	for _, k := range trackers {
		if !k.selected(&l.cfg.Log) || !l.group.Leads() {
			continue
		}
		t, err := k.open(l, after)
		if err != nil {
			return errors.Join(fmt.Errorf("train: %w", err), l.closeLogs(err))
		}
		l.logs = append(l.logs, openLog{t, k.name})
	}
	return nil
}

// eachLog calls f with each tracker.
func (l *loop) eachLog(f func(t tracker) error) error {
	for _, t := range l.logs {
		if err := f(t.tracker); err != nil {
			return fmt.Errorf("train: %s: %w", t.name, err)
		}
	}
	return nil
}

// closeLogs closes the trackers. failed is the error of the run, or nil.
func (l *loop) closeLogs(failed error) error {
	var errs []error
	for _, t := range l.logs {
		if e, ok := t.tracker.(interface{ End(status string) }); ok && failed != nil {
			status := events.MLflowFailed
			if errors.Is(failed, ErrInterrupted) {
				status = events.MLflowKilled
			}
			e.End(status)
		}
		errs = append(errs, t.Close())
	}
	return errors.Join(errs...)
}

// openMLflow opens a run of MLflow with the settings of the configuration file as parameters.
func openMLflow(l *loop, after int64) (tracker, error) {
	params, err := l.cfg.GivenValues()
	if err != nil {
		return nil, err
	}
	return events.OpenMLflow(events.MLflowOptions{
		Getenv: os.Getenv, Name: filepath.Base(l.cfg.OutputDir), Params: params, File: filepath.Join(l.cfg.OutputDir, mlflowFile), After: after,
		Failed: func(err error) {
			l.observer.note("note     log.mlflow: %v; the run goes on, and later failures are not shown", err)
		},
		Lost: func(metrics int) {
			where := "no other log has them"
			if i := slices.IndexFunc(l.logs, func(t openLog) bool { return t.name != mlflowName }); i >= 0 {
				where = l.logs[i].name + " has them"
			}
			l.observer.note("note     log.mlflow: %d metrics did not reach the server; %s", metrics, where)
		},
	})
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
	return l.eachLog(func(t tracker) error { return t.Write(r) })
}

// recordImage passes a sample to the trackers of samples.
func (l *loop) recordImage(x events.Image) error {
	return l.eachLog(func(t tracker) error {
		if s, ok := t.(sampleTracker); ok {
			return s.WriteImage(x)
		}
		return nil
	})
}

// recordText passes a sample to the trackers of samples.
func (l *loop) recordText(x events.Text) error {
	return l.eachLog(func(t tracker) error {
		if s, ok := t.(sampleTracker); ok {
			return s.WriteText(x)
		}
		return nil
	})
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
