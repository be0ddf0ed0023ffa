package cache

import (
	"context"
	"slices"
)

// Outline is what the entries of a sample hold, without the values.
type Outline struct {
	Latent, Control []int // shapes; nil where there is no control image
	Tokens          int   // of the text
	Features        int   // of a token
	Pooled          int   // features of the vector of the whole text, 0 where there is none
	// Unkeyed says that one at least does not say what it was made of.
	Unkeyed bool
	// Sums are the checksums of what the entries hold. They are those of the tensors,
	// whatever kind of file these are in, and differ where a value does.
	Sums []string
}

// Outline reads what the entries of a sample say of themselves, with that of the empty
// prompt for its text where its caption is dropped. The values of an entry are read
// where it has no key. It fails as Sample does.
func (c *Cache) Outline(ctx context.Context, s Sample, dropped bool) (Outline, error) {
	var o Outline
	text, err := c.outline(ctx, c.prompt(s, dropped))
	if err != nil {
		return o, err
	}
	embeds := text.shapes[embedsName].shape
	o.Tokens, o.Features = embeds[0], embeds[1]
	if pooled, ok := text.shapes[pooledName]; ok {
		o.Pooled = pooled.shape[0]
	}
	image, err := c.outline(ctx, c.imageSlot(s.Image))
	if err != nil {
		return o, err
	}
	o.Latent = slices.Clone(image.shapes[latentName].shape)
	o.Sums = []string{text.sum, image.sum}
	o.Unkeyed = text.recipe == "" || image.recipe == ""
	if s.Control == "" {
		return o, nil
	}
	control, err := c.outline(ctx, c.controlSlot(s.Control))
	if err != nil {
		return o, err
	}
	o.Control = slices.Clone(control.shapes[latentName].shape)
	o.Sums = append(o.Sums, control.sum)
	o.Unkeyed = o.Unkeyed || control.recipe == ""
	return o, nil
}

// outline looks at an entry, and has its values summed up where nothing else says what
// they are.
func (c *Cache) outline(ctx context.Context, s slot) (*found, error) {
	leave, err := c.enter(ctx, s)
	if err != nil {
		return nil, err
	}
	defer leave()
	f, err := c.look(ctx, s, look{})
	if err != nil || f.recipe != "" {
		return f, err
	}
	if f, err = c.look(ctx, s, look{values: true}); err == nil {
		f.sum = checksum(f.tensors)
	}
	return f, err
}
