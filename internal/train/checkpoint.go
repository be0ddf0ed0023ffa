package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
)

// ErrCheckpoint is wrapped if a run cannot resume from a checkpoint.
var ErrCheckpoint = trainer.ErrCheckpoint

// ErrNothingToResume is wrapped by the error of a run that should resume from the
// latest checkpoint but has none.
var ErrNothingToResume = errors.New("nothing to resume")

// latest is the value of resume for the newest checkpoint in output_dir.
const latest = "latest"

const (
	checkpointPrefix = "checkpoint-"
	progressFile     = "training.json"
)

// writeCheckpoint writes checkpoint-STEP in output_dir: the adapter in PEFT's format,
// the moments of AdamW and the progress. If the initialization changed the base
// weights, it also writes an adapter for the original model. A kill at any moment
// leaves only complete checkpoints.
func (r *Run) writeCheckpoint(ctx context.Context) (string, error) {
	dir, e, p := r.cfg.OutputDir, r.engine, r.progress
	s, err := e.State(ctx)
	if err != nil {
		return "", err
	}
	moments, err := e.Moments(ctx)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, checkpointPrefix+strconv.Itoa(p.Step))
	err = trainer.Checkpoint{Moments: moments, Record: progressFile, Value: func(sums map[string]string) any {
		p.Sums = sums
		return p
	}, Adapter: func(tmp string) error {
		if err := r.saveAdapter(tmp, s, true); err != nil {
			return err
		}
		if s.Converts() {
			if err := r.saveAdapter(filepath.Join(tmp, AdapterDir), s, false); err != nil {
				return err
			}
		}
		return r.export(tmp, s)
	}}.Save(path)
	if err != nil {
		return "", fmt.Errorf("train: checkpoint %s: %w", path, err)
	}
	return path, nil
}

// CheckpointAdapter returns the folder with the adapter of a checkpoint in PEFT's
// format, as a finished run would save it.
func CheckpointAdapter(checkpoint string) string {
	if dir := filepath.Join(checkpoint, AdapterDir); isFolder(dir) {
		return dir
	}
	return checkpoint
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// unusable returns an ErrCheckpoint with the path of the checkpoint and the cause.
func unusable(path string, err error) error {
	return fmt.Errorf("train: checkpoint %s: %w: %w", path, ErrCheckpoint, err)
}

// readProgress reads the progress of a checkpoint.
func readProgress(path string) (p progress, err error) {
	raw, err := os.ReadFile(filepath.Join(path, progressFile))
	if err != nil {
		return p, unusable(path, err)
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return p, unusable(path, fmt.Errorf("%s: %w", progressFile, err))
	}
	if p.Step < 1 || p.Updates < 0 || p.Updates > p.Step {
		return p, unusable(path, fmt.Errorf("%s: found step %d with %d updates, expected a step of at least 1 and no more updates", progressFile, p.Step, p.Updates))
	}
	return p, nil
}

// readTensors reads the state and the moments of a checkpoint.
func readTensors(path string, p progress, s *lora.State) (trainer.Moments, error) {
	fail := func(err error) (trainer.Moments, error) { return nil, unusable(path, err) }
	a, err := lora.Load(path)
	if err != nil {
		return fail(err)
	}
	defer a.Close()
	if err := a.Check(s.Placement, lora.CheckOptions{AllowZeroB: true, AllowRandomBase: true}).Err(); err != nil {
		return fail(err)
	}
	for key, dst := range s.Values {
		x, err := a.Float32s(key)
		if err != nil {
			return fail(err)
		}
		copy(dst, x)
	}
	moments, err := trainer.ReadMoments(path)
	if err != nil {
		return fail(err)
	}
	if err := trainer.CheckSums(path, true, p.Sums); err != nil {
		return fail(err)
	}
	return moments, nil
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

// LatestCheckpoint returns the folder of the newest checkpoint in an output_dir, or "" if there is
// none.
func LatestCheckpoint(outputDir string) (string, error) {
	steps, err := checkpoints(outputDir)
	if err != nil || len(steps) == 0 {
		return "", err
	}
	return filepath.Join(outputDir, checkpointPrefix+strconv.Itoa(steps[len(steps)-1])), nil
}

// findCheckpoint resolves the value of resume, a folder or latest, to the folder of a checkpoint.
func findCheckpoint(resume, outputDir string) (string, error) {
	if resume != latest {
		if _, err := os.Stat(filepath.Join(resume, progressFile)); err != nil {
			return "", fmt.Errorf("train: resume %s: %w: %w", resume, ErrCheckpoint, err)
		}
		return resume, nil
	}
	path, err := LatestCheckpoint(outputDir)
	if err == nil && path == "" {
		err = nothingToResume(outputDir)
	}
	return path, err
}

// nothingToResume returns the error of a run, or of jobs, without a checkpoint.
func nothingToResume(outputDirs ...string) error {
	return fmt.Errorf("train: %w: no %s* in output_dir %s; leave resume out to start a new run", ErrNothingToResume, checkpointPrefix, strings.Join(outputDirs, ", "))
}

// forget removes the checkpoints in dir of steps after the given one. The records of
// these steps are removed as well, so no later run could resume from the checkpoints.
func forget(dir string, after int) ([]int, error) {
	steps, err := checkpoints(dir)
	if err != nil {
		return nil, err
	}
	later := slices.DeleteFunc(steps, func(n int) bool { return n <= after })
	for _, n := range later {
		if err := fsatomic.RemoveDir(filepath.Join(dir, checkpointPrefix+strconv.Itoa(n))); err != nil {
			return nil, err
		}
	}
	return later, nil
}

// prune removes all but the newest limit checkpoints; 0 keeps all.
func prune(dir string, limit int) error {
	steps, err := checkpoints(dir)
	if err != nil || limit <= 0 {
		return err
	}
	for _, n := range steps[:max(0, len(steps)-limit)] {
		if err := fsatomic.RemoveDir(filepath.Join(dir, checkpointPrefix+strconv.Itoa(n))); err != nil {
			return err
		}
	}
	return nil
}
