package feed

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/internal/data/cache"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// tokens names the axis of all tokens of a sample.
const tokens = nn.Tokens

// plane is the size of a latent.
type plane struct{ frames, height, width int }

// size holds the sizes that the samples of a batch share.
type size struct {
	picture, control plane // control is zero if there is none
}

// picture is a sample with its cache metadata.
type picture struct {
	cache.Sample
	bucket int
	sums   []string
}

// bucket describes the samples of a size.
type bucket struct {
	size
	text  int // tokens of the longest prompt
	image int // denoised tokens per sample
}

// look reads the outlines of all samples and groups them by size.
func (f *Feed) look(ctx context.Context) error {
	at := map[size]int{}
	for _, s := range f.Samples {
		o, err := f.Cache.Outline(ctx, s, false)
		if err != nil {
			return err
		}
		p := picture{Sample: s, sums: o.Sums}
		if o.Unkeyed {
			f.unkeyed++
		}
		longest := o.Tokens
		if f.CaptionDropout > 0 {
			empty, err := f.Cache.Outline(ctx, s, true)
			if err != nil {
				return fmt.Errorf("feed: the empty prompt, for captions that are dropped: %w", err)
			}
			if err := f.checkText(s, empty); err != nil {
				return err
			}
			p.sums, longest = append(p.sums, empty.Sums[0]), max(longest, empty.Tokens)
		}
		of, err := f.measure(s, o)
		if err != nil {
			return err
		}
		n, ok := at[of]
		if !ok {
			n, at[of] = len(f.buckets), len(f.buckets)
			f.buckets = append(f.buckets, bucket{size: of})
		}
		p.bucket = n
		b := &f.buckets[n]
		b.text = max(b.text, longest)
		f.pictures, f.order.Groups = append(f.pictures, p), append(f.order.Groups, n)
	}
	return nil
}

// measure validates a sample and returns its size.
func (f *Feed) measure(s cache.Sample, o cache.Outline) (of size, err error) {
	if err := f.checkText(s, o); err != nil {
		return of, err
	}
	if of.picture, err = f.plane(s.Image, o.Latent); err != nil || o.Control == nil {
		return of, err
	}
	if !f.Model.Space().Controls {
		return of, refuse(s.Control, "found a control image, expected none: the transformer takes no pictures to begin with")
	}
	of.control, err = f.plane(s.Control, o.Control)
	return of, err
}

// plane checks the shape of a latent, [C, H, W] or [C, frames, H, W], and returns its size
// for the transformer.
func (f *Feed) plane(file string, shape []int) (p plane, err error) {
	space := f.Model.Space()
	channels, multiple := space.Channels/(f.Fold*f.Fold), space.Multiple*f.Fold
	p = plane{frames: 1, height: shape[len(shape)-2], width: shape[len(shape)-1]}
	switch len(shape) {
	case 3:
	case 4:
		p.frames = shape[1]
	default:
		return p, refuse(file, "found a latent of shape %v, expected [channels, frames, height, width]", shape)
	}
	switch {
	case shape[0] != channels:
		return p, refuse(file, "found a latent of %d channels, expected %d as the transformer has: is the cache that of another model?", shape[0], channels)
	case p.frames < 1 || p.height < 1 || p.width < 1:
		return p, refuse(file, "found a latent of shape %v, expected sides of 1 or more", shape)
	case p.height%multiple != 0 || p.width%multiple != 0:
		return p, refuse(file, "found a latent of %d×%d, expected multiples of %d: the size of the picture does not fit the transformer", p.height, p.width, multiple)
	}
	p.height, p.width = p.height/f.Fold, p.width/f.Fold
	return p, nil
}

// checkText checks the embedding of a caption.
func (f *Feed) checkText(s cache.Sample, o cache.Outline) error {
	space := f.Model.Space()
	switch {
	case o.Features != space.Text:
		return refuse(s.Caption, "found %d features of a token, expected %d as the transformer has: is the cache that of another model?", o.Features, space.Text)
	case o.Tokens < 1:
		return refuse(s.Caption, "found no token in the embedding, expected 1 or more")
	case space.Pooled > 0 && o.Pooled != space.Pooled:
		return refuse(s.Caption, "found %d features of the whole caption (pooled_prompt_embeds), expected %d as the transformer has", o.Pooled, space.Pooled)
	}
	return nil
}

// refuse returns an error for the cache entry of a file. Errors: dit.ErrSample.
func refuse(file, format string, args ...any) error {
	return fmt.Errorf("feed: the cache entry of %s: %w: %s", file, dit.ErrSample, fmt.Sprintf(format, args...))
}

// like returns a sample with the sizes of a bucket and without values.
func (f *Feed) like(b bucket) dit.Sample {
	space := f.Model.Space()
	at := func(p plane) dit.Latent {
		return dit.Latent{Channels: space.Channels, Frames: p.frames, Height: p.height, Width: p.width}
	}
	s := dit.Sample{Latent: at(b.picture), Prompt: dit.Prompt{Features: space.Text, Mask: make([]bool, b.text)}}
	if b.control.frames > 0 {
		s.Controls = []dit.Latent{at(b.control)}
	}
	return s
}
