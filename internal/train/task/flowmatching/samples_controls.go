package flowmatching

import (
	"context"
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/internal/diffusion"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/vae"
)

// origin holds the control inputs of a sample.
type origin struct {
	controls *diffusion.Controls // shown to text encoders; nil without controls
	latents  []dit.Latent
	negative *dit.Prompt // negative prompt, or nil
	resized  bool        // the sample has the size of the controls
}

// size returns the size of the latent for the controls.
func (o origin) size(c *diffusion.Canvas) (width, height int) {
	return o.controls.Size.Width / c.Pixels, o.controls.Size.Height / c.Pixels
}

// origins returns the origins of samples: one for each of sample_prompts, or one for
// all. Without sample_controls the control is that of the first image, which is read if
// texts are encoded along with it.
func (p *pictures) origins(ctx context.Context, s *sampler, pipeline *diffusion.Pipeline, first dit.Sample, texts bool) ([]origin, error) {
	d := p.cfg.Diffusion
	const key = "train: diffusion.sample_controls"
	switch n := len(d.SampleControls); {
	case n > 1 && n != len(d.SamplePrompts):
		return nil, fmt.Errorf("%s: found %d pictures for %d of sample_prompts, expected one, or one for each", key, n, len(d.SamplePrompts))
	case n > 0 && len(d.SamplePrompts) == 0:
		return nil, fmt.Errorf("%s: found no sample_prompts, expected what is drawn from them", key)
	case n == 0 && texts && pipeline.Edits():
		from := origin{latents: first.Controls}
		path := p.feed.Samples[0].Control
		if path == "" {
			return nil, fmt.Errorf("%s: found none, and no controls, expected pictures that a %s draws from", key, pipeline.Class)
		}
		var err error
		from.controls, err = p.control(pipeline, s.canvas, first, path)
		return []origin{from}, err
	case n == 0:
		return []origin{{latents: first.Controls}}, nil
	}
	dev, err := p.OpenDevice()
	if err != nil {
		return nil, err
	}
	if err := s.canvas.Open(dev, vae.Options{}); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	defer func() { _ = s.canvas.Close() }()
	var all []origin
	for _, path := range d.SampleControls {
		c, err := p.control(pipeline, s.canvas, first, path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		latents, err := c.Latents(ctx, s.canvas)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", key, path, err)
		}
		all = append(all, origin{controls: c, latents: latents, resized: d.SampleWidth == 0 && d.SampleHeight == 0})
	}
	return all, nil
}

// control reads a control image and resizes it to about the size of the cached images.
func (p *pictures) control(pipeline *diffusion.Pipeline, canvas *diffusion.Canvas, first dit.Sample, path string) (*diffusion.Controls, error) {
	m, err := diffusion.ReadImage(path)
	if err != nil {
		return nil, err
	}
	side := math.Sqrt(float64(first.Latent.Height*first.Latent.Width)) * float64(canvas.Pixels)
	return pipeline.Controls(canvas, int(math.Round(side)), m)
}
