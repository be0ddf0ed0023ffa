package dit_test

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
)

const testdata = "../../../testdata/dit"

// golden is a transformer and what diffusers computed with it.
type golden struct {
	name    string
	samples []dit.Sample
	tensors *safetensors.File
}

// readGolden reads the inputs of a case as samples, with targets of weight 1.
func readGolden(t testing.TB, name string) golden {
	f, err := safetensors.Open(filepath.Join(testdata, name, "golden.safetensors"))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	g := golden{name: name, tensors: f}
	latents, shape := g.floats(t, "latents")
	noise, _ := g.floats(t, "noise")
	times, _ := g.floats(t, "timestep")
	text, textShape := g.floats(t, "encoder_hidden_states")
	for i := range shape[0] {
		s := dit.Sample{Timestep: timestep(times[i]), Weight: 1}
		sigma := s.Timestep / 1000
		x0, n := part(latents, shape[0], i), part(noise, shape[0], i)
		s.Latent = latent(shape, make([]float32, len(x0)))
		s.Target = make([]float32, len(x0))
		for k := range x0 {
			s.Latent.Values[k] = (1-sigma)*x0[k] + sigma*n[k]
			s.Target[k] = n[k] - x0[k]
		}
		for k := 0; f.Has(fmt.Sprintf("control.%d", k)); k++ {
			c, shape := g.floats(t, fmt.Sprintf("control.%d", k))
			s.Controls = append(s.Controls, latent(shape, part(c, shape[0], i)))
		}
		s.Prompt = dit.Prompt{Features: textShape[2], Values: part(text, textShape[0], i)}
		if f.Has("encoder_hidden_states_mask") {
			v, err := f.Lookup("encoder_hidden_states_mask")
			require.NoError(t, err)
			mask, err := safetensors.As[int64](v)
			require.NoError(t, err)
			for _, m := range part(mask, textShape[0], i) {
				s.Prompt.Mask = append(s.Prompt.Mask, m != 0)
			}
		}
		if f.Has("guidance") {
			guidance, _ := g.floats(t, "guidance")
			s.Guidance = guidance[i]
		}
		if f.Has("pooled_projections") {
			pooled, _ := g.floats(t, "pooled_projections")
			s.Prompt.Pooled = part(pooled, shape[0], i)
		}
		g.samples = append(g.samples, s)
	}
	return g
}

// timestep is t, which may be one of 0 to 1, as one of 0 to 1000 that is t once it is
// divided again.
func timestep(t float32) float32 {
	if t > 1 {
		return t
	}
	for x := t * 1000; ; x = math.Nextafter32(x, 1000) {
		if x/1000 == t {
			return x
		}
	}
}

func latent(shape []int, values []float32) dit.Latent {
	return dit.Latent{Channels: shape[1], Frames: 1, Height: shape[2], Width: shape[3], Values: values}
}

// part is part i of n of x.
func part[T any](x []T, n, i int) []T { return x[len(x)/n*i : len(x)/n*(i+1)] }

func (g golden) floats(t testing.TB, name string) ([]float32, []int) {
	return floats(t, g.tensors, name)
}

func floats(t testing.TB, f *safetensors.File, name string) ([]float32, []int) {
	v, err := f.Lookup(name)
	require.NoError(t, err)
	x, err := safetensors.As[float32](v)
	require.NoError(t, err)
	return x, v.Shape
}

// open opens the transformer of a case.
func open(t testing.TB, name string) (*model.Model, dit.Transformer) {
	m, err := model.Open(filepath.Join(testdata, name, "transformer"))
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m, m.Config.Family.(dit.Transformer)
}

// run is what a transformer gives for samples: the rows of the velocity.
func run(t testing.TB, m *model.Model, state *lora.State, samples []dit.Sample) []float32 {
	ctx, f := context.Background(), m.Config.Family.(dit.Transformer)
	r := host.Open(testdevice.Open(t, backend.Options{}), m)
	defer r.Close()
	slot, err := r.NewSlot(state)
	require.NoError(t, err)
	defer slot.Free()
	var b data.Batch
	require.NoError(t, f.Arrays(&b, samples))
	results, err := r.Compute(ctx, slot, engine.Spec{Name: "velocity", Bounds: bounds(f, samples), Build: func(b *nn.Builder, p *graph.Program) {
		p.Result("velocity", m.Build(b).Output(b, dit.Velocity))
	}}, &b, b.Longest())
	require.NoError(t, err)
	out, err := results.Get(ctx, "velocity")
	require.NoError(t, err)
	require.Len(t, out, len(samples)*len(samples[0].Latent.Values))
	return out
}

// bounds are the sizes of axes that hold all samples.
func bounds(f dit.Transformer, samples []dit.Sample) map[string]int {
	all := map[string]int{}
	for _, s := range samples {
		for axis, n := range f.Bounds(len(samples), s) {
			all[axis] = max(all[axis], n)
		}
	}
	return all
}

// requireNear holds values to a limit, absolute and as a part of the largest.
func requireNear(t testing.TB, want, got []float32, absolute, relative float64) {
	t.Helper()
	require.Len(t, got, len(want))
	off, largest := 0.0, 0.0
	for i := range want {
		off = max(off, math.Abs(float64(want[i])-float64(got[i])))
		largest = max(largest, math.Abs(float64(want[i])))
		require.False(t, math.IsNaN(float64(got[i])))
	}
	t.Logf("off by %.2g, %.2g of the largest", off, off/largest)
	require.LessOrEqual(t, off, absolute)
	require.LessOrEqual(t, off, relative*largest)
}

// goldens are the cases of FLUX.1 and Qwen-Image.
var goldens = []string{"flux", "qwenimage", "qwenimage-edit", "qwenimage-edit-zero-cond"}

func TestGoldens(t *testing.T) {
	for _, name := range goldens {
		t.Run(name, func(t *testing.T) {
			g := readGolden(t, name)
			m, f := open(t, name)
			want, _ := g.floats(t, "output")
			requireNear(t, want, run(t, m, nil, g.samples), 1e-4, 1e-5)

			var b data.Batch
			require.NoError(t, f.Arrays(&b, g.samples))
			for _, x := range []struct{ array, tensor string }{{dit.Latents, "hidden_states"}, {dit.Target, "target"}} {
				want, _ := g.floats(t, x.tensor)
				requireNear(t, want, array(t, &b, x.array), 1e-6, 1e-6)
			}
		})
	}
}

// array is an array of floats of a batch.
func array(t testing.TB, b *data.Batch, name string) []float32 {
	for _, a := range b.Arrays() {
		if a.Name == name {
			return a.Floats
		}
	}
	require.Fail(t, "no array", name)
	return nil
}
