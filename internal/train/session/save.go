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

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/vec"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
)

// Files of a session in addition to those of an adapter.
const (
	recordFile  = "session.json"
	momentsFile = "optimizer.safetensors"
)

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
	Sums      map[string]string `json:"sums"`      // of the files with tensors
}

// Options returns the options of a session into which the folder can be loaded.
func (r *Record) Options() Options {
	return Options{Rank: r.Rank, Alpha: r.Alpha, Seed: r.Seed, Attention: r.Attention, MLP: r.MLP, Unembed: r.Unembed, MaxTokens: r.MaxTokens, Name: r.Model}
}

// ReadRecord reads the record that a session has saved in dir. Errors: ErrCheckpoint.
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

// unusable returns an ErrCheckpoint with the folder and the cause.
func unusable(dir string, err error) error {
	return fmt.Errorf("session: %s: %w: %w", dir, ErrCheckpoint, err)
}

// Adapter returns a copy of the current adapter.
func (s *Session) Adapter(ctx context.Context) (*lora.Adapter, error) {
	tensors, err := s.read(ctx, "")
	if err != nil {
		return nil, err
	}
	return lora.New(s.state.Placement.Config(), tensors)
}

// Snapshot returns a copy of the current adapter as a state for a registry. Later steps
// do not change it. Errors: lora.ErrNotFinite.
func (s *Session) Snapshot(ctx context.Context) (*lora.State, error) {
	n := 0
	for _, t := range s.trained {
		n += elements(t.Shape)
	}
	all, values := make([]float32, n), make(map[string][]float32, len(s.trained))
	for _, t := range s.trained {
		n := elements(t.Shape)
		x := all[:n:n]
		all = all[n:]
		if err := s.base.host.ReadSlot(ctx, s.slot, t.Key, x); err != nil {
			return nil, fmt.Errorf("session: %w", err)
		}
		if !vec.Finite(x) {
			return nil, fmt.Errorf("session: %q: %w", t.Key, lora.ErrNotFinite)
		}
		values[t.Key] = x
	}
	return s.state.WithValues(values)
}

// Save atomically writes a folder with the adapter in PEFT's format, and replaces an
// existing one. With optimizer, the folder contains everything that a session needs to
// continue exactly, except pending gradients. The parent folder must exist.
func (s *Session) Save(ctx context.Context, dir string, optimizer bool) error {
	tensors, err := s.read(ctx, "")
	if err != nil {
		return err
	}
	o := s.options
	r := Record{Rank: o.Rank, Alpha: o.Alpha, Seed: o.Seed, Attention: o.Attention, MLP: o.MLP, Unembed: o.Unembed, MaxTokens: o.MaxTokens, Model: o.Name, Step: s.step, Optimizer: optimizer}
	var moments []safetensors.Entry
	if optimizer {
		for _, prefix := range []string{firstPrefix, secondPrefix} {
			all, err := s.read(ctx, prefix)
			if err != nil {
				return err
			}
			for _, t := range all {
				moments = append(moments, safetensors.Entry{Name: t.Key, DType: safetensors.F32, Shape: t.Shape, Data: t.Data})
			}
		}
	}
	err = fsatomic.ReplaceDir(dir, func(tmp string) error {
		if err := lora.Save(tmp, s.state.Placement.Config(), tensors); err != nil {
			return err
		}
		if optimizer {
			if err := safetensors.WriteFile(filepath.Join(tmp, momentsFile), moments, nil); err != nil {
				return err
			}
		}
		var err error
		if r.Sums, err = fsatomic.Sums(tmp, tensorFiles(optimizer)...); err != nil {
			return err
		}
		raw, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(tmp, recordFile), append(raw, '\n'), 0o666)
	})
	if err != nil {
		return fmt.Errorf("session: save %s: %w", dir, err)
	}
	return nil
}

// Load restores the state that Save wrote to a folder, with optimizer including the
// moments and the number of steps. Without optimizer, it accepts any PEFT adapter with
// the session's targets, ranks and scales. Gradients are cleared. If the folder cannot
// be loaded (ErrCheckpoint), nothing changes.
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
		sums, err := fsatomic.Sums(dir, tensorFiles(r.Optimizer)...)
		if err != nil {
			return unusable(dir, err)
		}
		for name, sum := range sums {
			if r.Sums[name] != sum {
				return unusable(dir, fmt.Errorf("damaged: %s is %s, and was %s", name, sum, r.Sums[name]))
			}
		}
	}
	values, err := s.readAdapter(dir)
	if err != nil {
		return unusable(dir, err)
	}
	var moments map[string][]float32
	step := 0
	if optimizer {
		if moments, err = s.readMoments(filepath.Join(dir, momentsFile)); err != nil {
			return unusable(dir, err)
		}
		step = r.Step
	}
	s.slot.Changed()
	for _, x := range []struct {
		prefix string
		values map[string][]float32
	}{{"", values}, {firstPrefix, moments}, {secondPrefix, moments}, {gradientPrefix, nil}} {
		if err := s.fill(ctx, x.prefix, x.values); err != nil {
			s.drop(err)
			return err
		}
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
	p, err := lora.NewPlacement(a.Config, s.base.modules)
	if err != nil {
		return nil, err
	}
	if err := alike(p, s.state.Placement); err != nil {
		return nil, err
	}
	if err := a.Check(s.state.Placement, lora.CheckOptions{AllowZeroB: true}).Err(); err != nil {
		return nil, err
	}
	for _, name := range a.Names() {
		if !slices.ContainsFunc(s.trained, func(t lora.TensorSpec) bool { return t.Key == name }) {
			return nil, fmt.Errorf("it brings %q, a weight of the model: a session trains on those that the model has", name)
		}
	}
	values := map[string][]float32{}
	for _, t := range s.trained {
		if values[t.Key], err = a.Float32s(t.Key); err != nil {
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

func (s *Session) readMoments(path string) (map[string][]float32, error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	moments := map[string][]float32{}
	for _, prefix := range []string{firstPrefix, secondPrefix} {
		for _, t := range s.trained {
			v, err := f.Lookup(prefix + t.Key)
			if err != nil {
				return nil, err
			}
			if !slices.Equal(v.Shape, t.Shape) {
				return nil, fmt.Errorf("%s: tensor %q is %v, expected %v", momentsFile, prefix+t.Key, v.Shape, t.Shape)
			}
			x, err := safetensors.As[float32](v)
			if err != nil {
				return nil, err
			}
			moments[prefix+t.Key] = slices.Clone(x)
		}
	}
	return moments, nil
}

// tensorFiles returns the names of the files with tensors.
func tensorFiles(optimizer bool) []string {
	if optimizer {
		return []string{lora.WeightsFile, momentsFile}
	}
	return []string{lora.WeightsFile}
}
