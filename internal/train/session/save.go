package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/internal/vec"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// recordFile is the file with the record of a session.
const recordFile = "session.json"

// Record is the saved metadata of a session.
type Record struct {
	Rank      int               `json:"rank"`
	Alpha     float64           `json:"alpha"`
	Seed      uint64            `json:"seed"`
	Attention bool              `json:"attention"`
	MLP       bool              `json:"mlp"`
	Unembed   bool              `json:"unembed"`
	MaxTokens int               `json:"max_tokens,omitempty"`
	Model     string            `json:"model,omitempty"`
	Step      int               `json:"step"`
	Optimizer bool              `json:"optimizer"` // whether the optimizer state is saved
	Algorithm trainer.Optimizer `json:"optimizer_type,omitempty"`
	Sums      map[string]string `json:"sums"` // of the files with tensors
}

// Options returns the options of a session into which the folder can be loaded.
func (r *Record) Options() Options {
	return Options{Rank: r.Rank, Alpha: r.Alpha, Seed: r.Seed, Attention: r.Attention, MLP: r.MLP, Unembed: r.Unembed, MaxTokens: r.MaxTokens, Name: r.Model, Optimizer: r.Algorithm}
}

// ReadRecord reads the record that a session has saved in dir. Errors:
// trainer.ErrCheckpoint.
func ReadRecord(dir string) (*Record, error) {
	raw, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err != nil {
		return nil, unusable(dir, err)
	}
	r := &Record{}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, unusable(dir, fmt.Errorf("%s: %w", recordFile, err))
	}
	if r.Rank < 1 || r.Step < 0 {
		return nil, unusable(dir, fmt.Errorf("%s: found rank %d and step %d, expected a rank of at least 1 and a step of at least 0", recordFile, r.Rank, r.Step))
	}
	return r, nil
}

// unusable returns a trainer.ErrCheckpoint with the folder and the cause.
func unusable(dir string, err error) error {
	return fmt.Errorf("session: %s: %w: %w", dir, trainer.ErrCheckpoint, err)
}

// values returns a copy of the current adapter. Errors: lora.ErrNotFinite.
func (s *Session) values(ctx context.Context) (map[string][]float32, error) {
	values := make(map[string][]float32, len(s.trainer.Trained()))
	err := s.trainer.Values(ctx, values, func(name string, x []float32) error {
		if !vec.Finite(x) {
			return fmt.Errorf("%q: %w", name, lora.ErrNotFinite)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	return values, nil
}

// Snapshot returns a copy of the current adapter as a state for a registry. Later steps
// do not change it. Errors: lora.ErrNotFinite.
func (s *Session) Snapshot(ctx context.Context) (*lora.State, error) {
	values, err := s.values(ctx)
	if err != nil {
		return nil, err
	}
	return s.state.WithValues(values)
}

// Save atomically writes a folder with the adapter in PEFT's format, and replaces an
// existing one. With optimizer, the folder contains everything that a session needs to
// continue exactly, except pending gradients. The parent folder must exist.
func (s *Session) Save(ctx context.Context, dir string, optimizer bool) error {
	values, err := s.values(ctx)
	if err != nil {
		return err
	}
	var tensors []lora.Tensor
	for _, t := range s.trainer.Trained() {
		tensors = append(tensors, lora.Tensor{Key: t.Name, Tensor: tensor.Tensor{DType: tensor.F32, Shape: t.Shape, Data: tensor.BytesOf(values[t.Name])}})
	}
	var moments trainer.Moments
	if optimizer {
		if moments, err = s.trainer.Moments(ctx); err != nil {
			return fmt.Errorf("session: %w", err)
		}
	}
	o := s.options
	r := Record{Rank: o.Rank, Alpha: o.Alpha, Seed: o.Seed, Attention: o.Attention, MLP: o.MLP, Unembed: o.Unembed, MaxTokens: o.MaxTokens, Model: o.Name, Step: s.step, Optimizer: optimizer, Algorithm: o.Optimizer}
	err = trainer.Checkpoint{
		Adapter: func(tmp string) error { return lora.Save(tmp, s.state.Placement.Config(), tensors) },
		Moments: moments, Record: recordFile, Value: func(sums map[string]string) any {
			r.Sums = sums
			return r
		},
	}.Save(dir)
	if err != nil {
		return fmt.Errorf("session: save %s: %w", dir, err)
	}
	return nil
}

// Load restores the state that Save wrote to a folder, with optimizer including the
// moments and the number of steps. Without optimizer, it accepts any PEFT adapter with
// the session's targets, ranks and scales. Gradients are cleared. If the folder cannot
// be loaded (trainer.ErrCheckpoint), nothing changes.
func (s *Session) Load(ctx context.Context, dir string, optimizer bool) error {
	r, err := ReadRecord(dir)
	switch {
	case !optimizer && errors.Is(err, fs.ErrNotExist):
		r = &Record{}
	case err != nil:
		return err
	case optimizer && !r.Optimizer:
		return unusable(dir, errors.New("it was saved without the state of the optimizer"))
	default:
		if err := trainer.CheckSums(dir, r.Optimizer, r.Sums); err != nil {
			return unusable(dir, err)
		}
	}
	values, err := s.readAdapter(dir)
	if err != nil {
		return unusable(dir, err)
	}
	var moments trainer.Moments
	step := 0
	if optimizer {
		if moments, err = trainer.ReadMoments(dir); err == nil {
			err = s.trainer.Matches(moments)
		}
		if err != nil {
			return unusable(dir, err)
		}
		step = r.Step
	}
	err = s.trainer.SetValues(ctx, values)
	if err == nil {
		err = s.trainer.SetMoments(ctx, moments)
	}
	if err == nil {
		err = s.trainer.Clear(ctx)
	}
	if err != nil {
		s.drop(err)
		return fmt.Errorf("session: %w", err)
	}
	s.step, s.pending, s.lost = step, 0, nil
	return nil
}

// readAdapter returns the tensors of an adapter that matches the session's.
func (s *Session) readAdapter(dir string) (map[string][]float32, error) {
	a, err := lora.Load(dir)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	p, err := lora.NewPlacement(a.Config, s.modules.SpelledAs(a.Names()))
	if err != nil {
		return nil, err
	}
	if err := alike(p, s.state.Placement); err != nil {
		return nil, err
	}
	if err := a.Check(s.state.Placement, lora.CheckOptions{AllowZeroB: true}).Err(); err != nil {
		return nil, err
	}
	trained := s.trainer.Trained()
	for _, name := range a.Names() {
		if !slices.ContainsFunc(trained, func(t nn.Trained) bool { return t.Name == name }) {
			return nil, fmt.Errorf("it brings %q, a weight of the model: a session trains on those that the model has", name)
		}
	}
	values := map[string][]float32{}
	for _, t := range trained {
		if values[t.Name], err = a.Float32s(t.Name); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// alike rejects an adapter whose computation differs from the session's.
func alike(found, expected *lora.Placement) error {
	for _, t := range expected.Targets {
		x, ok := found.Target(t.Name)
		switch {
		case !ok:
			return fmt.Errorf("the adapter has no part in %q, which the session trains", t.Name)
		case x.Rank != t.Rank || x.Scale != t.Scale || x.Method() != t.Method() || x.LoraBias != t.LoraBias:
			return fmt.Errorf("the adapter of %q has rank %d and scale %v, expected %d and %v", t.Name, x.Rank, x.Scale, t.Rank, t.Scale)
		}
	}
	for _, t := range found.Targets {
		if _, ok := expected.Target(t.Name); !ok {
			return fmt.Errorf("the adapter has a part in %q, which the session does not train", t.Name)
		}
	}
	return nil
}
