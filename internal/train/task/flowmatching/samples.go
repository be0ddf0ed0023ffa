package flowmatching

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/lorafuse/lorafuse/internal/data/cache"
	"github.com/lorafuse/lorafuse/internal/diffusion"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/flow"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/events"
)

// SamplesDir is the folder in output_dir with the images generated during training.
const SamplesDir = "samples"

// sampler generates images during training.
type sampler struct {
	style    diffusion.Style
	schedule *flow.Schedule
	canvas   *diffusion.Canvas
	drawings []diffusion.Drawing
	samples  *diffusion.Samples // once there is a planner
}

// newSampler reads the settings of samples, and returns nil if none are requested.
func (p *pictures) newSampler(ctx context.Context, pipeline *diffusion.Pipeline, transformer *model.Config) (*sampler, error) {
	d := p.cfg.Diffusion
	if p.cfg.SampleEvery == 0 || !d.DrawSamples {
		return nil, nil
	}
	s := &sampler{style: pipeline.Style(transformer)}
	var err error
	if s.canvas, err = pipeline.Canvas(p.feed.Model.Space()); err == nil {
		err = s.canvas.Fetch() // now, and not in the middle of the run
	}
	if err != nil {
		return nil, fmt.Errorf("train: sample_every: %w", err)
	}
	if s.schedule, err = pipeline.Schedule(); err != nil {
		return nil, err
	}
	first, err := p.feed.Scene(ctx, 0)
	if err != nil {
		return nil, err
	}
	what := diffusion.Drawing{Frames: first.Latent.Frames, Height: first.Latent.Height, Width: first.Latent.Width, Steps: d.SampleSteps, Seed: p.cfg.Seed}
	if d.SampleWidth > 0 || d.SampleHeight > 0 {
		c := s.canvas
		w, h := d.SampleWidth, d.SampleHeight
		if w == 0 {
			w = first.Latent.Width * c.Pixels
		}
		if h == 0 {
			h = first.Latent.Height * c.Pixels
		}
		if what.Width, what.Height, err = c.Latent(w, h); err != nil {
			return nil, fmt.Errorf("train: diffusion.sample_width and sample_height: %w", err)
		}
	}
	if space := p.feed.Model.Space(); d.SampleGuidance != 0 {
		if !space.Guidance && s.style.Negative == nil {
			return nil, fmt.Errorf("train: diffusion.sample_guidance: found %v, expected none: the pipeline of this %s has no prompt to lead away from", d.SampleGuidance, transformer.Architecture)
		}
		what.SetGuidance(space, d.SampleGuidance)
	}
	return s, p.addPrompts(ctx, s, pipeline, what, first)
}

// addPrompts makes a drawing of each prompt.
func (p *pictures) addPrompts(ctx context.Context, s *sampler, pipeline *diffusion.Pipeline, what diffusion.Drawing, first dit.Sample) error {
	prompts := p.cfg.Diffusion.SamplePrompts
	texts := slices.ContainsFunc(prompts, func(x string) bool { return !isEncoded(x) })
	origins, err := p.origins(ctx, s, pipeline, first, texts)
	if err != nil {
		return err
	}
	var encoder *diffusion.Encoder
	if texts {
		dev, err := p.OpenDevice()
		if err != nil {
			return err
		}
		if encoder, err = pipeline.OpenEncoder(ctx, dev); err != nil {
			return fmt.Errorf("train: diffusion.sample_prompts: %w", err)
		}
		defer encoder.Close()
	}
	if s.style.Negative != nil && s.style.Guided(what) {
		for i := range origins {
			if origins[i].negative, err = p.negative(ctx, s, encoder, origins[i].controls); err != nil {
				return err
			}
			if origins[i].negative == nil {
				break // nor has any other one
			}
		}
	}
	add := func(from origin, prompt dit.Prompt) {
		d := what
		d.Prompt, d.Controls, d.Negative = prompt, from.latents, from.negative
		if from.resized {
			d.Width, d.Height = from.size(s.canvas)
		}
		s.drawings = append(s.drawings, d)
	}
	if len(prompts) == 0 {
		add(origins[0], first.Prompt)
	}
	for i, x := range prompts {
		from := origins[min(i, len(origins)-1)]
		var prompt dit.Prompt
		if isEncoded(x) {
			prompt, err = diffusion.ReadPrompt(x)
		} else {
			prompt, err = from.controls.Encode(ctx, encoder, x)
			for _, t := range encoder.Truncations() {
				p.Note("note     diffusion.sample_prompts: prompt %d is %v", i+1, t)
			}
		}
		if err != nil {
			return fmt.Errorf("train: diffusion.sample_prompts: %q: %w", x, err)
		}
		add(from, prompt)
	}
	return nil
}

// isEncoded reports whether a prompt is a file of an encoded text.
func isEncoded(prompt string) bool {
	ending := filepath.Ext(prompt)
	return ending == ".safetensors" || ending == ".pt"
}

// negative returns the negative prompt of the model's pipeline: encoded, or, without
// encoders, the empty prompt of the cache. Without either, samples are generated
// without guidance.
func (p *pictures) negative(ctx context.Context, s *sampler, encoder *diffusion.Encoder, controls *diffusion.Controls) (*dit.Prompt, error) {
	var n dit.Prompt
	var err error
	if encoder != nil {
		n, err = controls.Encode(ctx, encoder, *s.style.Negative)
	} else if n, err = p.feed.Empty(ctx, 0); errors.Is(err, cache.ErrMissing) {
		p.Note("note     samples are drawn without guidance: the cache has no empty prompt")
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("train: sample_every: the negative prompt: %w", err)
	}
	return &n, nil
}

// reserve returns the device memory for samples, in bytes, next to the host's.
func (p *pictures) reserve(h *host.Host, adapter *engine.Slot) (int64, error) {
	s := p.sampler
	painter, err := diffusion.NewPainter(h, s.schedule, s.style)
	if err != nil {
		return 0, err
	}
	s.samples = &diffusion.Samples{Painter: painter, Canvas: s.canvas, Drawings: s.drawings}
	n, err := s.samples.Need(adapter)
	if err != nil {
		return 0, fmt.Errorf("train: sample_every: %w", err)
	}
	return n, nil
}

// draw generates images into output_dir and TensorBoard if they are due after a step.
func (p *pictures) draw(ctx context.Context, done train.Done) error {
	if done.Step%p.cfg.SampleEvery != 0 && !done.Last {
		return nil
	}
	grid, err := p.sampler.samples.Draw(ctx, done.Adapter)
	if err != nil {
		return fmt.Errorf("train: samples of step %d: %w", done.Step, err)
	}
	path := filepath.Join(p.cfg.OutputDir, SamplesDir, fmt.Sprintf("step-%06d.png", done.Step))
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	if err := fsatomic.Sweep(filepath.Dir(path)); err != nil { // temporary files of a killed run
		return fmt.Errorf("train: %w", err)
	}
	if err := diffusion.WritePNG(path, grid); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	p.Note("samples  %s", path)
	return done.Image(events.Image{Step: int64(done.Step), Tag: SamplesDir, Picture: grid})
}
