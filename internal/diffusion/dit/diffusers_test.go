package dit_test

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/task/flowmatching"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
)

// What scripts/dit_goldens.py has written: a picture of layers, with weights in bfloat16,
// and one that is made from another.
func TestControls(t *testing.T) {
	for _, x := range []struct{ name, model string }{{"qwenimage-layered", "qwenimage-layered"}, {"kontext", "flux"}} {
		t.Run(x.name, func(t *testing.T) {
			f, err := safetensors.Open(filepath.Join(testdata, x.name, "golden.safetensors"))
			require.NoError(t, err)
			defer f.Close()
			times, _ := floats(t, f, "timestep")
			samples := make([]dit.Sample, len(times))
			for i := range samples {
				text, shape := floats(t, f, "text")
				samples[i] = dit.Sample{Latent: latentOf(t, f, "latents", i), Controls: []dit.Latent{latentOf(t, f, "control", i)}, Timestep: times[i]}
				p := &samples[i].Prompt
				p.Features, p.Values = shape[2], part(text, shape[0], i)
				if f.Has("pooled") {
					pooled, _ := floats(t, f, "pooled")
					guidance, _ := floats(t, f, "guidance")
					p.Pooled, samples[i].Guidance = part(pooled, len(times), i), guidance[i]
					continue
				}
				v, err := f.Lookup("mask")
				require.NoError(t, err)
				mask, err := safetensors.As[int64](v)
				require.NoError(t, err)
				for _, m := range part(mask, shape[0], i) {
					p.Mask = append(p.Mask, m != 0)
				}
			}
			m, _ := open(t, x.model)
			want, _ := floats(t, f, "output")
			requireNear(t, want, run(t, m, nil, samples), 1e-4, 1e-5)
		})
	}
}

// latentOf is sample i of latents in a file.
func latentOf(t testing.TB, f *safetensors.File, name string, i int) dit.Latent {
	x, shape := floats(t, f, name)
	return dit.Latent{Channels: shape[1], Frames: shape[2], Height: shape[3], Width: shape[4], Values: part(x, shape[0], i)}
}

// All linear layers are trained, and those that no loss depends on stay as they are.
func TestAllLinear(t *testing.T) {
	trained, all := trainAll(t, readGolden(t, "qwenimage"), "all-linear", 2e-4, func(want, got float64) { require.InDelta(t, want, got, 2e-5) })
	require.Equal(t, all-2*3, trained, "the last to_add_out and txt_mlp")
}

// trainAll repeats a run of PEFT that trains all linear layers on the samples of a golden.
// relative is how far off the adapter may be of its largest number, near holds losses. It
// gives the number of tensors that are trained, and of those that the adapter has.
func trainAll(t *testing.T, g golden, dir string, relative float64, near func(want, got float64)) (trained, all int) {
	ctx := context.Background()
	f, err := safetensors.Open(filepath.Join(testdata, dir, "golden.safetensors"))
	require.NoError(t, err)
	defer f.Close()
	m, d := open(t, g.name)
	c := lora.DefaultConfig()
	c.R, c.LoraAlpha, c.TargetModules = 2, 4, lora.ModuleSet{Pattern: lora.AllLinear}
	p, err := lora.NewPlacement(c, lora.ModelOf("", m.Modules()))
	require.NoError(t, err)
	state, err := p.InitialState(m, 1)
	require.NoError(t, err)
	require.Len(t, f.Names(), len(state.Values)+1)
	for _, x := range state.Values {
		for i := range x {
			x[i] = float32(0.1 * math.Sin(float64(i)))
		}
	}
	e, err := train.NewEngine(ctx, testdevice.Open(t, backend.Options{}), m, state, train.EngineOptions{
		Loss: flowmatching.Loss(bounds(d, g.samples)), MaxTokens: 1, Adam: trainer.Adam{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.1},
	})
	require.NoError(t, err)
	defer e.Close()
	var b data.Batch
	require.NoError(t, d.Arrays(&b, g.samples))
	losses, _ := floats(t, f, "losses")
	for i, want := range losses {
		require.NoError(t, e.Accumulate(ctx, &b, 0))
		got, err := e.Update(ctx, b.LossTokens, i+1, 1e-3)
		require.NoError(t, err)
		near(float64(want), got.Loss)
	}
	state, err = e.State(ctx)
	require.NoError(t, err)
	for key, got := range state.Values {
		want, _ := floats(t, f, key)
		requireNear(t, want, got, 2e-4, relative)
	}
	return len(e.Trained()), len(state.Values)
}
