package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/train/events"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
)

// BestDir is the folder in output_dir with the adapter of the best evaluation (save_best).
const BestDir = "best"

// bestFile is the file in BestDir that describes the evaluation. The folder is replaced at once,
// so that adapter and description always belong together; a resumed run compares with it.
const bestFile = "best.json"

// Best is the best evaluation of a run so far.
type Best struct {
	Step    int     `json:"step"`
	Metric  string  `json:"metric"`
	Value   float64 `json:"value"`
	Adapter string  `json:"adapter,omitempty"` // folder
}

// better reports whether a value of the metric is better than best, which may be nil, by more than
// delta. NaN never is.
func better(metric string, value float64, best *float64, delta float64) bool {
	switch {
	case math.IsNaN(value):
		return false
	case best == nil:
		return true
	case metric == events.EvalLoss:
		return value < *best-delta
	}
	return value > *best+delta
}

// checkBest rejects a best_metric that the task does not have.
func (r *Run) checkBest(loss trainer.Loss) error {
	if c := r.cfg; (c.SaveBest || c.EarlyStopping.Patience > 0) && c.BestMetric != events.EvalLoss && !loss.HasAccuracy() {
		return fmt.Errorf("train: best_metric: %w: found %s, expected %s, the only metric of evaluations of task: %s", ErrOption, c.BestMetric, events.EvalLoss, c.Task)
	}
	return nil
}

// openBest reads the best evaluation of the run that is resumed, or removes that of an earlier
// run in the folder.
func (l *loop) openBest() error {
	if !l.cfg.SaveBest || !l.group.Leads() {
		return nil
	}
	dir := filepath.Join(l.cfg.OutputDir, BestDir)
	if l.resumed == "" {
		if err := fsatomic.RemoveDir(dir); err != nil {
			return fmt.Errorf("train: save_best: %w", err)
		}
		return nil
	}
	path := filepath.Join(dir, bestFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if l.progress.LastEval != nil {
			l.observer.note("note     save_best: %s is missing: evaluations before step %d do not count", path, l.progress.Step)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("train: save_best: %w", err)
	}
	b := &Best{Adapter: dir}
	if err := json.Unmarshal(raw, b); err != nil {
		return fmt.Errorf("train: save_best: %s: %w", path, err)
	}
	if b.Metric != l.cfg.BestMetric {
		l.observer.note("note     save_best: %s is the best by %s: by %s, evaluations before step %d do not count", dir, b.Metric, l.cfg.BestMetric, l.progress.Step)
		return nil
	}
	l.best = b
	return nil
}

// saveBest saves the adapter if its value of best_metric is the best so far.
func (l *loop) saveBest(value float64) error {
	if !l.cfg.SaveBest || !l.group.Leads() {
		return nil
	}
	var best *float64
	if l.best != nil {
		best = &l.best.Value
	}
	if !better(l.cfg.BestMetric, value, best, 0) {
		return nil
	}
	state, err := l.engine.State(context.Background())
	if err != nil {
		return err
	}
	b := Best{Step: l.progress.Step, Metric: l.cfg.BestMetric, Value: value}
	raw, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("train: save_best: %w", err)
	}
	b.Adapter, err = l.saveFolder(BestDir, state, func(tmp string) error {
		return fsatomic.WriteFile(filepath.Join(tmp, bestFile), append(raw, '\n'))
	})
	if err != nil {
		return err
	}
	l.best = &b
	l.observer.note("best     %s %.4f at step %d: %s", b.Metric, b.Value, b.Step, b.Adapter)
	return nil
}

// saveFolder writes a folder in output_dir with the adapter and its model card, and returns its
// path. more, unless it is nil, adds further files.
func (l *loop) saveFolder(name string, state *lora.State, more func(tmp string) error) (string, error) {
	dir := filepath.Join(l.cfg.OutputDir, name)
	own, err := ownCard(dir)
	if err == nil {
		err = fsatomic.ReplaceDir(dir, func(tmp string) error {
			if err := l.saveAdapter(tmp, state, false); err != nil {
				return err
			}
			if more != nil {
				if err := more(tmp); err != nil {
					return err
				}
			}
			return l.writeCard(tmp, own)
		})
	}
	if err != nil {
		return "", fmt.Errorf("train: %s: %w", dir, err)
	}
	return dir, nil
}
