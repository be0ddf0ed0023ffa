package dit_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/task/flowmatching"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
)

// trace is a run of diffusers and PEFT on one batch.
type trace struct {
	Hyperparameters struct {
		LR          float64 `json:"lr"`
		Betas       [2]float64
		Eps         float64
		WeightDecay float64 `json:"weight_decay"`
		MaxGradNorm float64 `json:"max_grad_norm"`
	}
	Trace []struct {
		Loss     float64
		GradNorm float64 `json:"grad_norm"`
	}
}

// TestTraces repeats every recorded run: the gradients of the second step, loss and norm
// of each, and the adapter at the end. Losses and gradients are compared with float64.safetensors
// if the recorded ones are further from float64 than ours (scripts/dit_goldens_float64.py).
func TestTraces(t *testing.T) {
	for _, name := range goldens {
		for _, checkpointing := range []bool{false, true} {
			t.Run(name+map[bool]string{true: "/checkpointing"}[checkpointing], func(t *testing.T) {
				repeat(t, readGolden(t, name), filepath.Join(testdata, name, "train"), checkpointing)
			})
		}
	}
}

func repeat(t *testing.T, g golden, dir string, checkpointing bool) {
	ctx := context.Background()
	raw, err := os.ReadFile(filepath.Join(dir, "trace.json"))
	require.NoError(t, err)
	var tr trace
	require.NoError(t, json.Unmarshal(raw, &tr))
	m, f := open(t, g.name)
	modules := lora.ModelOf(m.Config.ModelType, m.Modules())
	state, err := dialects.LoadState(filepath.Join(dir, "init.safetensors"), m, modules, lora.CheckOptions{AllowZeroB: true})
	require.NoError(t, err)
	gradients := filepath.Join(dir, "grads_step1.safetensors")
	if path := filepath.Join(dir, "float64.safetensors"); fileExists(path) {
		gradients = path
		for i, loss := range readLosses(t, path, len(tr.Trace)) {
			tr.Trace[i].Loss = loss
		}
	}
	h := tr.Hyperparameters
	e, err := train.NewEngine(ctx, testdevice.Open(t, backend.Options{}), m, state, train.EngineOptions{
		Loss: flowmatching.Loss(bounds(f, g.samples)), MaxTokens: 1,
		Adam:          trainer.Adam{Beta1: h.Betas[0], Beta2: h.Betas[1], Eps: h.Eps, WeightDecay: h.WeightDecay, MaxGradNorm: h.MaxGradNorm},
		Checkpointing: checkpointing,
	})
	require.NoError(t, err)
	defer e.Close()
	var b data.Batch
	require.NoError(t, f.Arrays(&b, g.samples))
	require.Equal(t, len(g.samples), b.LossTokens)
	for i, want := range tr.Trace {
		require.NoError(t, e.Accumulate(ctx, &b, 0))
		if i == 1 {
			checkGradients(t, e, gradients, len(g.samples))
		}
		got, err := e.Update(ctx, b.LossTokens, i+1, h.LR)
		require.NoError(t, err)
		require.InDelta(t, want.Loss, got.Loss, 2e-5, "loss of step %d", i)
		require.InEpsilon(t, want.GradNorm, got.GradNorm, 2e-4, "gradient norm of step %d", i)
	}
	s, err := e.State(ctx)
	require.NoError(t, err)
	final, err := dialects.LoadState(filepath.Join(dir, "final.safetensors"), m, modules, lora.CheckOptions{})
	require.NoError(t, err)
	require.Len(t, s.Values, len(final.Values))
	for _, key := range slices.Sorted(maps.Keys(final.Values)) {
		requireNear(t, final.Values[key], s.Values[key], 2e-4, 3e-3)
	}
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// readLosses reads the losses of a run in float64.
func readLosses(t *testing.T, path string, steps int) []float64 {
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	defer f.Close()
	v, err := f.Lookup("losses")
	require.NoError(t, err)
	losses, err := safetensors.As[float64](v)
	require.NoError(t, err)
	require.Len(t, losses, steps)
	return slices.Clone(losses)
}

// checkGradients holds the gradients to those of a file, where there is one.
func checkGradients(t *testing.T, e *train.Engine, path string, samples int) {
	f, err := safetensors.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	require.NoError(t, err)
	defer f.Close()
	for _, p := range e.Trained() {
		want, _ := floats(t, f, strings.Replace(p.Name, "base_model.model.", "transformer.", 1))
		got := make([]float32, len(want))
		require.NoError(t, e.Gradient(context.Background(), p.Name, got))
		for i := range got {
			got[i] /= float32(samples)
		}
		requireNear(t, want, got, 1, 1e-4)
	}
}
