package diffusion

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"image"
	"slices"

	"github.com/lorafuse/lorafuse/data/picture"
	"github.com/lorafuse/lorafuse/diffusion/dit"
	"github.com/lorafuse/lorafuse/diffusion/vae"
	"github.com/lorafuse/lorafuse/internal/suggest"
)

// ErrControl is wrapped where a picture is none that others can be made from.
var ErrControl = errors.New("wrong control picture")

// Controls are the pictures that others are made from, at the sizes that a pipeline takes.
// Those of no pictures are nil, and may be used like others.
type Controls struct {
	// Size is that of what is drawn from them, in pixels, where no other is asked for.
	Size picture.Size

	shown  []image.Image // as they are, for the text encoder
	fitted []*image.RGBA // for the autoencoder
}

// fitting is how the pipelines of a family take pictures to begin with. Sides are multiples
// of a number, and areas about side².
type fitting struct {
	most int // pictures; 0: as many as there are
	// scale is the size that a picture is brought to, whatever its shape becomes.
	scale func(s picture.Size, side, multiple int) (picture.Size, error)
	// cut is the size of the middle of what was scaled that is taken; nil: all of it.
	cut func(scaled picture.Size, multiple int) picture.Size
	// result is the size of what is drawn, by those of pictures as they are, and as they
	// are taken.
	result func(shown, fitted []picture.Size, side, multiple int) picture.Size
}

// fitting says how the pipeline takes pictures to begin with. Errors: ErrControl where it
// takes none.
func (p *Pipeline) fitting() (*fitting, error) {
	if e, ok := edits[p.Class]; ok {
		return e.fit, nil
	}
	_, class := p.transformer()
	if f := familyOf(class).fit; f != nil {
		return f, nil
	}
	return nil, fmt.Errorf("diffusion: %w: a pipeline of a %s takes no control image; expected %s", ErrControl, class, suggest.Or(controlled))
}

// controlled lists the pipelines that take control images.
var controlled = []string{
	"Flux2KleinPipeline", "Flux2Pipeline", "FluxKontextPipeline", "QwenImageEditPipeline", "QwenImageEditPlusPipeline",
}

// CheckControls reports an error if the pipeline itself takes no control image, although its
// transformer may have learned from an adapter to read some. A transformer without
// model_index.json, or in a single file, does not say for which pipeline it is. Errors:
// ErrControl.
func (p *Pipeline) CheckControls() error {
	if p.Class == "" || p.IsSingle() || slices.Contains(controlled, p.Class) {
		return nil
	}
	return fmt.Errorf("diffusion: %w: a %s takes no control image; expected %s", ErrControl, p.Class, suggest.Or(controlled))
}

// Edits reports whether the pipeline draws from pictures alone: its text encoder is shown
// them along with each text.
func (p *Pipeline) Edits() bool { return edits[p.Class].fit != nil }

// Controls brings pictures to the sizes that the pipeline takes, as diffusers does, of about
// side² pixels; side 0 is what diffusers has for all models, 1024. The canvas is that of the
// pipeline. Errors: ErrControl where it takes no pictures, or not these.
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

// name is what the pipeline is called in errors.
func (p *Pipeline) name() string {
	if p.Class != "" {
		return "a " + p.Class
	}
	_, class := p.transformer()
	return "a pipeline of a " + class
}

// Encode is what the text encoders make of a text: along with the pictures, where they are
// shown those. Errors: those of Encoder.EncodeWith.
func (c *Controls) Encode(ctx context.Context, e *Encoder, text string) (dit.Prompt, error) {
	if c == nil || !e.Sees() {
		return e.Encode(ctx, text)
	}
	return e.EncodeWith(ctx, text, c.shown...)
}

// Latents are those of the pictures, by a canvas that is open. Errors: those of
// Canvas.Encode.
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
