package train_test

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// TestRounding compares the error of runs at precision bf16, whose operands and
// activations are rounded, with that of PyTorch's autocast to bfloat16: of the gradients that all batches
// have with the first adapter, and of the losses of the run. A loss is one number,
// whose error is chance as to its sign, so that it takes all runs to compare them; a
// run's gradients are a few thousand, of which some are worse by chance too. If two
// experts have almost equal scores, rounding may route a token to the other one, which
// changes the gradients and the loss of its whole batch: of a model with experts, the limits
// are for the better half of the batches and steps. Gradients of a run in which PyTorch's are
// half wrong have no limit.
func TestRounding(t *testing.T) {
	raw, err := os.ReadFile("../../testdata/rounding.json")
	require.NoError(t, err)
	var theirs struct{ Gradients, Losses map[string]float64 }
	require.NoError(t, json.Unmarshal(raw, &theirs))
	runs := append(traces(t), peftTraces(t)...)
	require.Len(t, theirs.Losses, len(runs))
	var ours, other struct{ gradients, losses float64 } // sums of logarithms
	for _, r := range runs {
		t.Run(r.name, func(t *testing.T) {
			path, err := filepath.Rel("../../testdata", r.dir)
			require.NoError(t, err)
			path = filepath.ToSlash(path)
			require.Contains(t, theirs.Gradients, path)
			dev := testdevice.Open(t, backend.Options{Precision: backend.BF16})
			gradients, betterGradients := r.gradientError(t, dev)
			losses, betterLosses := r.lossError(t, dev)
			t.Logf("gradients %.2g, PyTorch's %.2g; losses %.2g, PyTorch's %.2g", gradients, theirs.Gradients[path], losses, theirs.Losses[path])
			config, err := model.ReadConfig(r.base)
			require.NoError(t, err)
			if config.Mixture() == nil {
				betterGradients, betterLosses = gradients, losses
			}
			if theirs.Gradients[path] < 0.5 {
				assert.Less(t, betterGradients, 2*theirs.Gradients[path])
			}
			assert.Less(t, betterLosses, 3*theirs.Losses[path])
			ours.gradients, ours.losses = ours.gradients+math.Log(gradients), ours.losses+math.Log(losses)
			other.gradients, other.losses = other.gradients+math.Log(theirs.Gradients[path]), other.losses+math.Log(theirs.Losses[path])
		})
	}
	mean := func(sum float64) float64 { return math.Exp(sum / float64(len(runs))) }
	t.Logf("gradients of all runs %.2g, PyTorch's %.2g; losses %.2g, PyTorch's %.2g", mean(ours.gradients), mean(other.gradients), mean(ours.losses), mean(other.losses))
	require.LessOrEqual(t, ours.gradients, other.gradients)
	require.LessOrEqual(t, ours.losses, other.losses)
}

// gradientError is that of the first adapter's gradients on all batches, and on the better half of them,
// against the CPU in float32, which other tests hold to the recorded ones.
func (r recorded) gradientError(t *testing.T, dev backend.Device) (all, better float64) {
	exact, rounded := r.gradients(t, testdevice.OpenOn(t, backend.CPU, backend.Options{})), r.gradients(t, dev)
	batches := make([]testdevice.Deviation, len(exact))
	for b := range exact {
		require.Len(t, rounded[b], len(exact[b]))
		for i, want := range exact[b] {
			batches[b].Add(float64(rounded[b][i]), float64(want))
		}
	}
	return relativeErrors(batches)
}

// relativeErrors returns the relative error of all parts together, and of the better half of them.
func relativeErrors(parts []testdevice.Deviation) (all, better float64) {
	slices.SortFunc(parts, func(a, b testdevice.Deviation) int { return cmp.Compare(a.Relative(), b.Relative()) })
	var total testdevice.Deviation
	for i, part := range parts {
		total.Join(part)
		if i == (len(parts)-1)/2 {
			better = total.Relative()
		}
	}
	return total.Relative(), better
}

// gradients are those of each batch, with the weight that one step gives them.
func (r recorded) gradients(t *testing.T, dev backend.Device) (all [][]float32) {
	ctx := context.Background()
	f, err := safetensors.Open(filepath.Join(r.dir, "grads_step0.safetensors"))
	require.NoError(t, err)
	defer f.Close()
	e, batches := r.begin(t, dev)
	for i, b := range batches {
		require.NoError(t, e.Accumulate(ctx, b, 0))
		var own []float32
		for _, p := range e.Trained() {
			v, err := f.Lookup(inMemoryName(p.Name, f))
			require.NoError(t, err)
			g := make([]float32, v.Len()/tensor.F32.Size())
			require.NoError(t, e.Gradient(ctx, p.Name, g))
			for _, x := range g {
				own = append(own, x/float32(b.LossTokens))
			}
		}
		all = append(all, own)
		_, err := e.Update(ctx, b.LossTokens, i+1, 0) // changes nothing
		require.NoError(t, err)
	}
	return all
}

// lossError returns the error of the losses of all steps, and of the better half of them, against the recorded ones.
func (r recorded) lossError(t *testing.T, dev backend.Device) (all, better float64) {
	ctx := context.Background()
	e, batches := r.begin(t, dev)
	var steps []testdevice.Deviation
	for i, want := range readTrace(t, r.dir).Trace {
		require.NoError(t, e.Accumulate(ctx, batches[want.Batch], 0))
		got, err := e.Update(ctx, batches[want.Batch].LossTokens, i+1, want.RawLR)
		require.NoError(t, err)
		var step testdevice.Deviation
		step.Add(got.Loss, want.RawLoss)
		steps = append(steps, step)
	}
	return relativeErrors(steps)
}
