package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// ErrCheckpoint is wrapped where a checkpoint cannot be gone on from.
var ErrCheckpoint = errors.New("unusable checkpoint")

const (
	checkpointPrefix = "checkpoint-"
	optimizerFile    = "optimizer.safetensors"
	progressFile     = "training.json"
)

// writeCheckpoint writes dir/checkpoint-STEP: the adapter as PEFT has it, the
// moments of AdamW and the progress. A kill at any moment leaves whole
// checkpoints alone.
func writeCheckpoint(ctx context.Context, dir string, e *Engine, p progress) (string, error) {
	s, err := e.State(ctx)
	if err != nil {
		return "", err
	}
	moments, err := e.Moments(ctx)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, checkpointPrefix+strconv.Itoa(p.Step))
	err = fsatomic.ReplaceDir(path, func(tmp string) error {
		if err := s.Save(tmp, true); err != nil {
			return err
		}
		var entries []safetensors.Entry
		for _, name := range slices.Sorted(maps.Keys(moments)) {
			x := moments[name]
			entries = append(entries, safetensors.Entry{Name: name, DType: safetensors.F32, Shape: []int{len(x)}, Data: tensor.BytesOf(x)})
		}
		if err := safetensors.WriteFile(filepath.Join(tmp, optimizerFile), entries, nil); err != nil {
			return err
		}
		raw, err := json.MarshalIndent(p, "", "  ")
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(tmp, progressFile), append(raw, '\n'), 0o666)
	})
	if err != nil {
		return "", fmt.Errorf("train: checkpoint %s: %w", path, err)
	}
	return path, nil
}

// readCheckpoint brings the state, the moments and the progress back.
func readCheckpoint(path string, s *lora.State) (progress, map[string][]float32, error) {
	var p progress
	fail := func(err error) (progress, map[string][]float32, error) {
		return p, nil, fmt.Errorf("train: checkpoint %s: %w: %w", path, ErrCheckpoint, err)
	}
	raw, err := os.ReadFile(filepath.Join(path, progressFile))
	if err != nil {
		return fail(err)
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return fail(fmt.Errorf("%s: %w", progressFile, err))
	}
	a, err := lora.Load(path)
	if err != nil {
		return fail(err)
	}
	defer a.Close()
	if err := a.Check(s.Plan, lora.CheckOptions{AllowZeroB: true, AllowRandomBase: true}).Err(); err != nil {
		return fail(err)
	}
	for key, dst := range s.Values {
		x, err := a.Float32s(key)
		if err != nil {
			return fail(err)
		}
		copy(dst, x)
	}
	f, err := safetensors.Open(filepath.Join(path, optimizerFile))
	if err != nil {
		return fail(err)
	}
	defer f.Close()
	moments := map[string][]float32{}
	for _, name := range f.Names() {
		v, err := f.Lookup(name)
		if err != nil {
			return fail(err)
		}
		x, err := safetensors.As[float32](v)
		if err != nil {
			return fail(err)
		}
		moments[name] = slices.Clone(x)
	}
	return p, moments, nil
}

// checkpoints lists the checkpoints in dir by their steps, the oldest first.
func checkpoints(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var steps []int
	for _, e := range entries {
		if n, err := strconv.Atoi(strings.TrimPrefix(e.Name(), checkpointPrefix)); err == nil && e.IsDir() && strings.HasPrefix(e.Name(), checkpointPrefix) {
			steps = append(steps, n)
		}
	}
	slices.Sort(steps)
	return steps, nil
}

// findCheckpoint resolves what resume asks for: a folder, or latest, for which
// there may be none.
func findCheckpoint(resume, dir string) (string, error) {
	if resume != "latest" {
		if _, err := os.Stat(filepath.Join(resume, progressFile)); err != nil {
			return "", fmt.Errorf("train: resume %s: %w: %w", resume, ErrCheckpoint, err)
		}
		return resume, nil
	}
	steps, err := checkpoints(dir)
	if err != nil || len(steps) == 0 {
		return "", err
	}
	return filepath.Join(dir, checkpointPrefix+strconv.Itoa(steps[len(steps)-1])), nil
}

// prune removes all but the newest limit checkpoints; 0 keeps all.
func prune(dir string, limit int) error {
	steps, err := checkpoints(dir)
	if err != nil || limit <= 0 {
		return err
	}
	for _, n := range steps[:max(0, len(steps)-limit)] {
		if err := os.RemoveAll(filepath.Join(dir, checkpointPrefix+strconv.Itoa(n))); err != nil {
			return err
		}
	}
	return nil
}
