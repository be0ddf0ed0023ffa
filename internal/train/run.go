package train

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dist"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/ranks"
	"github.com/lorafuse/lorafuse/internal/train/schedule"
)

// ErrInterrupted is wrapped if a run was interrupted; a checkpoint has been saved.
var ErrInterrupted = ranks.ErrInterrupted

// ErrNothingNew is wrapped together with ErrInterrupted if the run made no progress
// that a new checkpoint could contain.
var ErrNothingNew = errors.New("before a new step was done")

// AdapterDir is the folder in output_dir that the trained adapter is saved in.
const AdapterDir = "adapter"

// Summary is the result of a finished run.
type Summary struct {
	Steps           int      `json:"steps"`
	Seconds         float64  `json:"seconds"` // of this process
	Tokens          int64    `json:"tokens"`  // or images, see Unit
	TokensPerSecond float64  `json:"tokens_per_second"`
	Unit            string   `json:"unit,omitempty"` // images; empty for tokens
	FirstLoss       float64  `json:"first_loss"`
	LastLoss        float64  `json:"last_loss"`
	FirstEval       *float64 `json:"first_eval_loss,omitempty"`
	LastEval        *float64 `json:"last_eval_loss,omitempty"`
	Accuracy        *float64 `json:"last_eval_accuracy,omitempty"` // of a classifier
	EarlyStop       bool     `json:"stopped_early,omitempty"`
	Best            *Best    `json:"best,omitempty"` // with save_best
	Adapter         string   `json:"adapter"`
	Parameters      int      `json:"trained_parameters"`
	Memory          Memory   `json:"memory"`
	Fit             Fit      `json:"plan"`
	Plot            string   `json:"plot,omitempty"`
	// Load describes the upload of the weights to a device with its own memory.
	Load *backend.LoadStats `json:"load,omitempty"`
}

// MarshalJSON writes losses as metrics.jsonl has them: an evaluation may be NaN.
func (s Summary) MarshalJSON() ([]byte, error) {
	type plain Summary
	return json.Marshal(struct {
		*plain
		FirstEval *number `json:"first_eval_loss,omitempty"`
		LastEval  *number `json:"last_eval_loss,omitempty"`
	}{(*plain)(&s), (*number)(s.FirstEval), (*number)(s.LastEval)})
}

// UnmarshalJSON parses the format of MarshalJSON.
func (s *Summary) UnmarshalJSON(text []byte) error {
	type plain Summary
	var p struct {
		*plain
		FirstEval *number `json:"first_eval_loss"`
		LastEval  *number `json:"last_eval_loss"`
	}
	p.plain = (*plain)(s)
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	s.FirstEval, s.LastEval = (*float64)(p.FirstEval), (*float64)(p.LastEval)
	return nil
}

// Train runs until the last step, or until ctx ends: then it saves a
// checkpoint and returns ErrInterrupted. Errors: ErrNotFinite.
func (r *Run) Train(ctx context.Context) (*Summary, error) {
	if len(r.others) == 0 {
		return r.trainRank(ctx)
	}
	all := append([]*Run{r}, r.others...)
	sums, errs := make([]*Summary, len(all)), make([]error, len(all))
	each(all, func(rank int, r *Run) { sums[rank], errs[rank] = r.trainRank(ctx) })
	return sums[0], firstOf(errs)
}

// trainRank runs the part of a rank.
func (r *Run) trainRank(ctx context.Context) (*Summary, error) {
	s, err := r.trainPart(ctx)
	if err = r.group.Agree(ctx, nil, err); err != nil {
		return nil, err
	}
	return s, nil
}

func (r *Run) trainPart(ctx context.Context) (*Summary, error) {
	l := &loop{Run: r, begin: time.Now(), rated: r.dev.Info().Rated}
	var err error
	if l.rates, err = r.cfg.LearningRates(r.steps); err != nil {
		return nil, err
	}
	if r.resumed != "" && r.group.Leads() {
		later, err := forget(r.cfg.OutputDir, r.progress.Step)
		if err != nil {
			return nil, fmt.Errorf("train: %w", err)
		}
		if len(later) > 0 {
			r.observer.note("note     removed the checkpoints after step %d, where the run goes on: %v", r.progress.Step, later)
		}
	}
	if err := l.openBest(); err != nil {
		return nil, err
	}
	if err := l.openLogs(); err != nil {
		return nil, err
	}
	var s *Summary
	if err = l.logPlan(); err == nil {
		err = l.run(ctx)
	}
	if err == nil && r.base != nil && l.ahead && r.cfg.SaveSteps > 0 {
		err = l.save() // so that this job has nothing left to do if the others are resumed
	}
	if err == nil {
		s, err = l.finish()
	}
	if closeErr := l.closeLogs(err); err == nil && closeErr != nil {
		err = fmt.Errorf("train: the adapter is saved in %s, but the logs of the run may be incomplete: %w", s.Adapter, closeErr)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Close frees the memory of the run and unlocks its output folder.
func (r *Run) Close() {
	for _, other := range r.others {
		other.Close()
	}
	if r.engine != nil {
		r.engine.Close()
	}
	if r.dev != nil && r.base == nil {
		r.dev.Close()
	}
	if r.model != nil && r.base == nil && (r.shared == nil || r.model != r.shared.m) {
		r.model.Close()
	}
	if len(r.others) > 0 {
		r.shared.close()
	}
	if r.lock != nil {
		_ = r.lock.Unlock() // which ends with the process at the latest
		r.lock = nil
	}
}

// unit returns the unit for a summary: empty for tokens.
func unit(r Rows) string {
	if u := r.Unit(); u != "tokens" {
		return u
	}
	return ""
}

// loop is a run in progress.
type loop struct {
	*Run
	rates  *schedule.Schedule
	begin  time.Time
	tokens int64 // trained on by this process
	ahead  bool  // of the newest checkpoint: something was done since
	saved  bool  // this process has saved a checkpoint
	best   *Best // nil without an evaluation, or without save_best
	batch  data.Batch
	rated  backend.Peak // of the device
	logs   []openLog
}

// run executes steps until the last one, or until early stopping. A step has two parts:
// the update, and then evaluation and record. A checkpoint may be taken between the
// two; a run that resumes from it begins with the second part.
func (l *loop) run(ctx context.Context) error {
	var err error
	if prepare := l.material.Prepare; prepare != nil && !l.ended() {
		err = prepare(ctx, l.engine, l.steps)
	}
	if err == nil {
		err = l.evaluateFirst(ctx)
	}
	for err == nil && !l.ended() {
		err = l.next(ctx)
	}
	if err != nil {
		return l.interrupted(ctx, err)
	}
	return nil
}

// next completes the pending step, or executes the next one.
func (l *loop) next(ctx context.Context) error {
	if l.progress.Pending == nil {
		if err := l.step(ctx); err != nil {
			return err
		}
	}
	if err := l.complete(ctx); err != nil {
		return err
	}
	done := l.progress.Step
	if err := l.compareAdapters(ctx); err != nil {
		return err
	}
	if done < l.steps && l.due(done) {
		if err := l.save(); err != nil {
			return err
		}
	}
	if l.ended() {
		return nil // only the adapter remains to be saved
	}
	if l.group != nil {
		return nil // the ranks agree on an interruption in the next exchange
	}
	return ctx.Err()
}

// due reports whether to save a checkpoint after a step.
func (l *loop) due(step int) bool {
	asked := l.observer.Save != nil && l.observer.Save(step)
	return asked || l.cfg.SaveSteps > 0 && step%l.cfg.SaveSteps == 0
}

// ended reports whether training is complete.
func (l *loop) ended() bool {
	p := l.progress
	return p.Pending == nil && (p.Step >= l.steps || p.stopped(l.cfg.EarlyStopping.Patience))
}

// interrupted saves a checkpoint of the finished work if ctx has ended.
func (l *loop) interrupted(ctx context.Context, err error) error {
	lost := errors.Is(err, dist.ErrLost)
	if ctx.Err() == nil && !lost && !errors.Is(err, context.Canceled) {
		return err
	}
	known := ranks.IsAgreed(err)
	if l.ahead {
		if err := l.save(); err != nil {
			return fmt.Errorf("train: %w, and the checkpoint could not be saved: %w", ErrInterrupted, err)
		}
	}
	switch {
	case lost:
		return err
	case !l.saved:
		err = fmt.Errorf("train: %w %w: %w", ErrInterrupted, ErrNothingNew, cmp.Or(context.Cause(ctx), context.Canceled))
	default:
		err = fmt.Errorf("train: %w after step %d of %d; go on with --resume", ErrInterrupted, l.progress.Step, l.steps)
	}
	if known {
		err = l.group.Told(err)
	}
	return err
}

// save writes a checkpoint, of which rank 0 takes care.
func (l *loop) save() error {
	if !l.group.Leads() {
		l.ahead, l.saved = false, true
		return nil
	}
	if err := l.eachLog(tracker.Sync); err != nil {
		return err
	}
	path, err := l.writeCheckpoint(context.Background())
	if err != nil {
		return err
	}
	l.ahead, l.saved = false, true
	l.observer.note("saved    %s", path)
	if l.observer.Saved != nil {
		l.observer.Saved(l.progress.Step, path)
	}
	if err := prune(l.cfg.OutputDir, l.cfg.SaveLimit); err != nil {
		return fmt.Errorf("train: save_limit: %w", err)
	}
	return nil
}

// finish saves the adapter and draws the loss. Ranks other than 0 only return the summary.
func (l *loop) finish() (*Summary, error) {
	dir := filepath.Join(l.cfg.OutputDir, AdapterDir)
	if l.group.Leads() {
		state, err := l.engine.State(context.Background())
		if err != nil {
			return nil, err
		}
		if _, err = l.saveFolder(AdapterDir, state, nil); err != nil {
			return nil, err
		}
		if err := l.export(l.cfg.OutputDir, state); err != nil {
			return nil, fmt.Errorf("train: %s: %w", l.cfg.OutputDir, err)
		}
	}
	seconds := time.Since(l.begin).Seconds()
	s := &Summary{
		Steps: l.progress.Step, Seconds: seconds, Tokens: l.progress.Tokens, TokensPerSecond: float64(l.tokens) / seconds, Unit: unit(l.train),
		FirstLoss: l.progress.FirstLoss, LastLoss: l.progress.LastLoss,
		FirstEval: (*float64)(l.progress.FirstEval), LastEval: (*float64)(l.progress.LastEval), Accuracy: l.progress.Accuracy,
		EarlyStop: l.progress.stopped(l.cfg.EarlyStopping.Patience), Best: l.best, Adapter: dir, Parameters: l.trainableNum, Memory: l.engine.Memory(), Fit: l.fitted, Load: l.load(),
	}
	if l.cfg.Log.Plot && l.cfg.Log.Metrics && l.group.Leads() {
		var err error
		if s.Plot, err = l.plot(); err != nil {
			return nil, err
		}
	}
	return s, nil
}
