package feed

import (
	"context"
	"slices"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/data/cache"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/flow"
	"github.com/lorafuse/lorafuse/tensor"
)

// fill builds a micro-batch of pictures. first is the index of the first sample within the
// step. Missing samples are filled with copies of weight zero.
func (f *Feed) fill(b *data.Batch, step, first int, pictures []int) error {
	samples := make([]dit.Sample, f.rows())
	noise := f.spare.Get().(*[]float32)
	defer f.spare.Put(noise) // Arrays copies
	*noise = (*noise)[:0]
	for i := range samples {
		if i >= len(pictures) {
			samples[i] = samples[0]
			samples[i].Weight = 0
			continue
		}
		var err error
		if samples[i], err = f.sample(step, first+i, f.pictures[pictures[i]], noise); err != nil {
			return err
		}
	}
	return f.Model.Arrays(b, samples)
}

// sample returns sample n of a step with its noise. It appends the target to noise.
func (f *Feed) sample(step, n int, p picture, noise *[]float32) (s dit.Sample, err error) {
	dropped := cache.DropCaption(f.Seed, uint32(step), n, f.CaptionDropout)
	if s, err = f.scene(context.Background(), p, dropped); err != nil {
		return s, err
	}
	draw := flow.NewDraw(f.Seed, step, n)
	sigma, timestep := f.Timesteps.At(f.Table, draw, f.buckets[p.bucket].image)
	from, size := len(*noise), len(s.Latent.Values)
	*noise = slices.Grow(*noise, size)[:from+size]
	s.Target = (*noise)[from:]
	draw.Noise(s.Target)
	flow.Mix(s.Latent.Values, s.Target, sigma)
	s.Timestep, s.Guidance, s.Weight = timestep, f.Guidance, f.Weighting.Weight(sigma)
	return s, nil
}

// Scene returns sample i without noise: its latent, controls and prompt.
func (f *Feed) Scene(ctx context.Context, i int) (s dit.Sample, err error) {
	return f.scene(ctx, f.pictures[i], false)
}

// Empty returns the empty prompt for sample i. Errors: cache.ErrMissing if the cache has
// none.
func (f *Feed) Empty(ctx context.Context, i int) (dit.Prompt, error) {
	s, err := f.scene(ctx, f.pictures[i], true)
	return s.Prompt, err
}

// scene returns the sample of p, with the empty prompt if its caption is dropped.
func (f *Feed) scene(ctx context.Context, p picture, dropped bool) (s dit.Sample, err error) {
	e, err := f.Cache.Sample(ctx, p.Sample, dropped)
	if err != nil {
		return s, err
	}
	if s.Latent, err = f.latent(e.Latent); err != nil {
		return s, err
	}
	if e.Control.DType != tensor.Invalid {
		control, err := f.latent(e.Control)
		if err != nil {
			return s, err
		}
		s.Controls = []dit.Latent{control}
	}
	s.Prompt, err = prompt(e.Text)
	return s, err
}

// latent reads a latent and normalizes it for the transformer.
func (f *Feed) latent(x tensor.Tensor) (l dit.Latent, err error) {
	n := len(x.Shape)
	l = dit.Latent{Channels: x.Shape[0], Frames: 1, Height: x.Shape[n-2], Width: x.Shape[n-1]}
	if n == 4 {
		l.Frames = x.Shape[1]
	}
	if l.Values, err = x.Float32s(); err != nil {
		return l, err
	}
	if f.Scale != nil {
		f.Scale.Normalise(l)
	}
	if f.Fold > 1 {
		l = l.Fold(f.Fold)
	}
	return l, nil
}

// prompt converts the embedding of a caption.
func prompt(e cache.Embedding) (p dit.Prompt, err error) {
	p.Features = e.Embeds.Shape[1]
	if p.Values, err = e.Embeds.Float32s(); err != nil {
		return p, err
	}
	p.Mask = make([]bool, len(e.Mask))
	for i, m := range e.Mask {
		p.Mask[i] = m != 0
	}
	if e.Pooled.DType != tensor.Invalid {
		p.Pooled, err = e.Pooled.Float32s()
	}
	return p, err
}
