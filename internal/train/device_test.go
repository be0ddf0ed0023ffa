package train_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/train/config"
)

// exampleSteps are ten steps of the example, of two rows each.
func exampleSteps(t *testing.T, sets ...string) []float64 {
	c, err := config.Load("../../examples/godoc/train.yaml", append([]string{
		"model=../../examples/godoc/model", "data.train=../../examples/godoc/train.jsonl", "data.eval=", "output_dir=" + t.TempDir(),
		"batch_size=2", "steps=10", "warmup_steps=2", "eval_at_start=false", "eval_steps=0", "save_steps=0", "log.plot=false",
	}, sets...)...)
	require.NoError(t, err)
	return losses(t, c)
}

// TestExampleSteps: every device has the losses of the CPU in float32, and those
// of rounded operands are near.
func TestExampleSteps(t *testing.T) {
	want := exampleSteps(t, "backend="+backend.CPU)
	require.Len(t, want, 10)
	for precision, limit := range map[string]float64{"f32": 1e-4, "bf16": 1e-2} {
		if precision == "f32" && testdevice.Backend() == backend.CPU {
			continue
		}
		t.Run(precision, func(t *testing.T) {
			if precision == "f32" {
				long(t)
			}
			got, worst := exampleSteps(t, "backend="+testdevice.Backend(), "precision="+precision), 0.0
			require.Len(t, got, 10)
			for i := range want {
				worst = max(worst, math.Abs(got[i]/want[i]-1))
			}
			t.Logf("relative difference %.2g", worst)
			require.LessOrEqual(t, worst, limit)
		})
	}
}

// long is for what takes long on devices that are simulated.
func long(t *testing.T) {
	if testdevice.Backend() != backend.CPU && os.Getenv("LORAFUSE_LONG") == "" {
		t.Skip("LORAFUSE_LONG=1 runs it on ", testdevice.Backend())
	}
}

// TestResumeIsExact: a run that ends in the middle and goes on on a device that
// is opened anew leaves the bytes of one that does not: of the adapter, the
// moments and the progress.
func TestResumeIsExact(t *testing.T) {
	for _, precision := range []string{"f32", "bf16"} {
		t.Run(precision, func(t *testing.T) {
			dir, base := t.TempDir(), t.TempDir()
			run := func(name string, sets ...string) error {
				c := configure(t, base, countingRows(16), append([]string{"output_dir=" + filepath.Join(dir, name), "precision=" + precision,
					"batch_size=2", "gradient_accumulation_steps=2", "steps=5", "save_steps=1", "adapter.lora_dropout=0.1", "data.shuffle=true"}, sets...)...)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				r, err := train.New(ctx, c, train.Observer{Step: func(s train.Report) {
					if name == "broken" && c.Resume == "" && s.Step == 2 {
						cancel()
					}
				}})
				require.NoError(t, err)
				defer r.Close()
				_, err = r.Train(ctx)
				return err
			}
			require.NoError(t, run("whole"))
			require.ErrorIs(t, run("broken"), train.ErrInterrupted)
			require.DirExists(t, filepath.Join(dir, "broken", "checkpoint-2"))
			require.NoDirExists(t, filepath.Join(dir, "broken", "checkpoint-3"))
			require.NoError(t, run("broken", "resume=latest"))
			for _, part := range []string{"checkpoint-4", train.AdapterDir} {
				files, err := os.ReadDir(filepath.Join(dir, "whole", part))
				require.NoError(t, err)
				require.NotEmpty(t, files)
				for _, f := range files {
					want, err := os.ReadFile(filepath.Join(dir, "whole", part, f.Name()))
					require.NoError(t, err)
					got, err := os.ReadFile(filepath.Join(dir, "broken", part, f.Name()))
					require.NoError(t, err)
					require.Equal(t, want, got, filepath.Join(part, f.Name()))
				}
			}
		})
	}
}
