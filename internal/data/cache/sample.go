package cache

import (
	"context"

	"github.com/lorafuse/lorafuse/tensor"
)

// Encoded is an encoded sample.
type Encoded struct {
	Name    string // for errors
	Text    Embedding
	Latent  tensor.Tensor // [C, …, H, W]
	Control tensor.Tensor // likewise, zero without one
}

// Sample reads the entries of a sample. If dropped is set, its text is the empty prompt. A source is not read again
// once this Cache has found its entry fresh.
//
// Sample builds nothing. It fails with ErrMissing, ErrStale, ErrCorrupt and ErrUnkeyed.
func (c *Cache) Sample(ctx context.Context, s Sample, dropped bool) (Encoded, error) {
	e := Encoded{Name: s.Image}
	text, err := c.get(ctx, c.prompt(s, dropped), nil, true)
	if err != nil {
		return e, err
	}
	if e.Text, err = text.embedding(); err != nil {
		return e, err
	}
	image, err := c.get(ctx, c.imageSlot(s.Image), nil, true)
	if err != nil {
		return e, err
	}
	e.Latent = image[latentName]
	if s.Control == "" {
		return e, nil
	}
	control, err := c.get(ctx, c.controlSlot(s.Control), nil, true)
	e.Control = control[latentName]
	return e, err
}

// prompt returns the entry of the caption of a sample or, if dropped, of the empty prompt. If the text was encoded with
// an image, the sample has its own entry for the empty prompt.
func (c *Cache) prompt(s Sample, dropped bool) slot {
	text := c.seen(c.textSlot(s.Caption), s)
	switch {
	case !dropped:
		return text
	case text.kind == textImageKind:
		return c.emptyWithSlot(s.Caption, text.image)
	}
	return c.emptySlot()
}
