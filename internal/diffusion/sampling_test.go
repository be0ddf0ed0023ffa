package diffusion_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/diffusion"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/vae"
	"github.com/lorafuse/lorafuse/internal/model"
)

// sampling is a case of scripts/make_sampling_goldens.py: what a pipeline of diffusers was
// asked for.
type sampling struct {
	Height, Width, Steps, Controls int
	Transformer, VAE               string
	Scheduler                      json.RawMessage
	Scale, Told                    *float64
	Cap, Until                     float64
	Distilled                      bool
	Sigmas                         []float64
}

// pipeline is one with the parts of the case.
func (c sampling) pipeline(t testing.TB) *diffusion.Pipeline {
	dir := t.TempDir()
	index := map[string]any{"_class_name": "Pipeline", "is_distilled": c.Distilled, "sample_sigmas": c.Sigmas}
	add := func(part, from string) {
		class := "Part"
		if config, err := model.ReadConfig(from); err == nil {
			class = config.Architecture
		}
		index[part] = []string{"diffusers", class}
		require.NoError(t, os.CopyFS(filepath.Join(dir, part), os.DirFS(from)))
	}
	write := func(path string, data []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, path), data, 0o644))
	}
	add(diffusion.Transformer, filepath.Join(testdata, c.Transformer, "transformer"))
	switch c.VAE {
	case "":
	case "flux2":
		add(diffusion.VAE, "vae/testdata/flux2")
	default:
		add(diffusion.VAE, filepath.Join(testdata, c.VAE, "vae"))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, diffusion.Scheduler), 0o755))
	write("scheduler/scheduler_config.json", c.Scheduler)
	index[diffusion.Scheduler] = []string{"diffusers", "FlowMatchEulerDiscreteScheduler"}
	raw, err := json.Marshal(index)
	require.NoError(t, err)
	write(diffusion.IndexFile, raw)
	p, err := diffusion.Open(dir)
	require.NoError(t, err)
	return p
}

// drawing is what the case draws, of tensors whose names begin with its own.
func (c sampling) drawing(g tensors, name string) diffusion.Drawing {
	d := diffusion.Drawing{
		Prompt: g.text(name + ".prompt"), Height: c.Height, Width: c.Width, Scale: c.Scale, Told: c.Told, Cap: c.Cap, Until: c.Until,
		Start: g.latent(name + ".start").Values,
	}
	if c.Sigmas == nil {
		d.Steps = c.Steps
	}
	if c.Distilled {
		d.Scale = nil
	}
	d.Prompt.Pooled = g.maybe(name + ".pooled")
	if g.f.Has(name + ".negative") {
		away := g.text(name + ".negative")
		away.Pooled = g.maybe(name + ".negative_pooled")
		d.Negative = &away
	}
	for i := range c.Controls {
		d.Controls = append(d.Controls, g.latent(name+".control."+strconv.Itoa(i)))
	}
	return d
}

// text is a prompt [tokens, features], with the places that controls have in it.
func (g tensors) text(name string) dit.Prompt {
	p := dit.Prompt{Features: g.shape(name)[1], Values: all[float32](g, name)}
	if slots := name + "_slots"; g.f.Has(slots) {
		for _, x := range all[int64](g, slots) {
			p.Slots = append(p.Slots, x != 0)
		}
	}
	return p
}

func (g tensors) maybe(name string) []float32 {
	if !g.f.Has(name) {
		return nil
	}
	return all[float32](g, name)
}

// latent is a tensor [channels, height, width].
func (g tensors) latent(name string) dit.Latent {
	s := g.shape(name)
	return dit.Latent{Channels: s[0], Frames: 1, Height: s[1], Width: s[2], Values: all[float32](g, name)}
}

// Drawings of every architecture are those of its pipeline of diffusers, step by step: with
// guidance and without, of pictures too, with levels of one's own.
func TestSamplingOfPipelines(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(testdata, "sampling/cases.json"))
	require.NoError(t, err)
	var cases map[string]sampling
	require.NoError(t, json.Unmarshal(raw, &cases))
	g := readTensors(t, "sampling")
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		t.Run(name, func(t *testing.T) {
			c, g := cases[name], tensors{t, g.f}
			pipeline := c.pipeline(t)
			p, slot, dev := painter(t, pipeline)
			d := c.drawing(g, name)
			steps := 0
			d.Each = func(step, of int, latent []float32) error {
				steps++
				assert.Equal(t, c.Steps, of)
				near(t, all[float32](g, name+".latents."+strconv.Itoa(step-1)), latent, 1e-5)
				return nil
			}
			latent, err := p.Draw(context.Background(), slot, d)
			require.NoError(t, err)
			assert.Equal(t, c.Steps, steps)
			if c.VAE == "" {
				return
			}
			canvas, err := pipeline.Canvas(p.Space())
			require.NoError(t, err)
			require.NoError(t, canvas.Open(dev, vae.Options{}))
			defer canvas.Close()
			picture, err := canvas.Paint(context.Background(), latent)
			require.NoError(t, err)
			for i, x := range picture.Values {
				picture.Values[i] = min(max(x/2+0.5, 0), 1)
			}
			near(t, all[float32](g, name+".image"), picture.Values, 2e-5)
		})
	}
}
