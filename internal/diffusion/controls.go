package diffusion

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"image"

	"github.com/lorafuse/lorafuse/internal/data/picture"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/vae"
	"github.com/lorafuse/lorafuse/internal/suggest"
)

// ErrControl is wrapped if an image cannot be used as a control image.
var ErrControl = errors.New("wrong control picture")

// Controls holds the control images of a drawing, resized for a pipeline. A nil *Controls
// means no control images; its methods work.
type Controls struct {
	// Size is the default size of the result, in pixels.
	Size picture.Size

	shown  []image.Image // original images, for the text encoder
	fitted []*image.RGBA // for the autoencoder
}

// fitting defines how the pipelines of a family resize control images. Sides are multiples of
// a number, and areas about side².
type fitting struct {
	most int // maximum number of images; zero means no limit
	// scale returns the size to which an image is resized. It need not keep the aspect
	// ratio.
	scale func(s picture.Size, side, multiple int) (picture.Size, error)
	// cut returns the size of the center crop after resizing. Nil means no crop.
	cut func(scaled picture.Size, multiple int) picture.Size
	// result returns the size of the result, given the sizes of the original and of the
	// resized images.
	result func(shown, fitted []picture.Size, side, multiple int) picture.Size
}

// fitting returns the resizing of control images for the pipeline. Errors: ErrControl if it
// does not support them.
func (p *Pipeline) fitting() (*fitting, error) {
	if v := p.variant(); v.fit != nil {
		return v.fit, nil
	}
	_, class := p.transformer()
	if f := families[class].fit; f != nil {
		return f, nil
	}
	return nil, fmt.Errorf("diffusion: %w: a pipeline of a %s takes no control image; expected %s", ErrControl, class, controlled())
}

// controlled returns the pipelines that accept control images as a list.
func controlled() string { return suggest.Or(variants(func(v variant) bool { return v.controls })) }

// CheckControls returns an error if the pipeline itself does not support control images,
// although its transformer may have learned to read them from an adapter. A transformer
// without model_index.json, or in a single file, does not name its pipeline and passes.
// Errors: ErrControl.
func (p *Pipeline) CheckControls() error {
	if p.Class == "" || p.IsSingle() || p.variant().controls {
		return nil
	}
	return fmt.Errorf("diffusion: %w: a %s takes no control image; expected %s", ErrControl, p.Class, controlled())
}

// Edits reports whether the pipeline only edits images: its text encoder reads them together
// with each prompt.
func (p *Pipeline) Edits() bool {
	c := p.variant().captions
	return c != nil && c.shows != nil
}

// Controls resizes control images as diffusers does for this pipeline, to about side² pixels.
// Zero means 1024, the default of diffusers for all models. The canvas must belong to the
// pipeline. Errors: ErrControl if the pipeline does not support control images, or not these.
func (p *Pipeline) Controls(c *Canvas, side int, pictures ...image.Image) (*Controls, error) {
	if len(pictures) == 0 {
		return nil, nil
	}
	f, err := p.fitting()
	if err != nil {
		return nil, err
	}
	side = cmp.Or(side, defaultSide)
	switch {
	case f.most > 0 && len(pictures) > f.most:
		return nil, fmt.Errorf("diffusion: %w: %d pictures, expected %d at most for %s", ErrControl, len(pictures), f.most, p.name())
	case side < c.Multiple:
		return nil, fmt.Errorf("diffusion: %w: an area of %d² pixels, expected %d² at least", ErrControl, side, c.Multiple)
	}
	all := &Controls{shown: pictures}
	var shown, fitted []picture.Size
	for i, m := range pictures {
		size := picture.SizeOf(m)
		scaled, err := f.scale(size, side, c.Multiple)
		if err != nil {
			return nil, fmt.Errorf("diffusion: %w: picture %d: %w", ErrControl, i+1, err)
		}
		img := picture.Lanczos.Scale(m, scaled)
		if f.cut != nil {
			img = picture.Middle(img, f.cut(scaled, c.Multiple))
		}
		all.fitted = append(all.fitted, img)
		shown, fitted = append(shown, size), append(fitted, picture.SizeOf(img))
	}
	all.Size = f.result(shown, fitted, side, c.Multiple)
	return all, nil
}

// name returns the name of the pipeline for error messages.
func (p *Pipeline) name() string {
	if p.Class != "" {
		return "a " + p.Class
	}
	_, class := p.transformer()
	return "a pipeline of a " + class
}

// Encode encodes a prompt, together with the images if the text encoder reads them. Errors:
// errors of Encoder.Encode.
func (c *Controls) Encode(ctx context.Context, e *Encoder, text string) (dit.Prompt, error) {
	if c == nil || !e.Sees() {
		return e.Encode(ctx, text)
	}
	return e.Encode(ctx, text, c.shown...)
}

// Latents encodes the control images with an open canvas. Errors: errors of Canvas.Encode.
func (c *Controls) Latents(ctx context.Context, canvas *Canvas) (all []dit.Latent, err error) {
	if c == nil {
		return nil, nil
	}
	for _, img := range c.fitted {
		size := picture.SizeOf(img)
		x, err := canvas.Encode(ctx, vae.Picture{Channels: colours, Height: size.Height, Width: size.Width, Values: picture.Signed(img)})
		if err != nil {
			return nil, err
		}
		all = append(all, x)
	}
	return all, nil
}

// whole rounds the sides of s down to multiples of multiple.
func whole(s picture.Size, multiple int) picture.Size {
	floor := func(x int) int { return max(1, x/multiple) * multiple }
	return picture.Size{Width: floor(s.Width), Height: floor(s.Height)}
}
