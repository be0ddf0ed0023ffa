package train

import (
	"context"
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/diffusion"
	"github.com/lorafuse/lorafuse/diffusion/dit"
	"github.com/lorafuse/lorafuse/diffusion/vae"
)

// origin is what a sample is drawn from.
type origin struct {
	controls *diffusion.Controls // that text encoders are shown; nil where there are none
	latents  []dit.Latent
	negative *dit.Prompt // what it is led away from, nil for nothing
	resized  bool        // the sample has the size that goes with the controls
}

// size is that of the latent that goes with the controls.
func (o origin) size(c *diffusion.Canvas) (width, height int) {
	return o.controls.Size.Width / c.Pixels, o.controls.Size.Height / c.Pixels
}

// origins are what samples are drawn from: one for each of sample_prompts, or one for all.
// Without sample_controls that is the control of the first picture, which is read where
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
	if err := p.openDevice(); err != nil {
		return nil, err
	}
	if err := s.canvas.Open(p.dev, vae.Options{}); err != nil {
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

// control is a picture at about the size that pictures were cached at.
func (p *pictures) control(pipeline *diffusion.Pipeline, canvas *diffusion.Canvas, first dit.Sample, path string) (*diffusion.Controls, error) {
	m, err := diffusion.ReadImage(path)
	if err != nil {
		return nil, err
	}
	side := math.Sqrt(float64(first.Latent.Height*first.Latent.Width)) * float64(canvas.Pixels)
	return pipeline.Controls(canvas, int(math.Round(side)), m)
}
