package cache

import (
	"context"
	"slices"
)

// Outline describes the entries of a sample without their values.
type Outline struct {
	Latent, Control []int // shapes; nil without a control image
	Tokens          int   // tokens of the text
	Features        int   // features per token
	Pooled          int   // features of the pooled embedding, 0 without one
	// Unkeyed is true if at least one entry has no key.
	Unkeyed bool
	// Sums are the checksums of the entries. They cover the tensors, independent of the file format, and differ if any
	// value does.
	Sums []string
}

// Outline reads the descriptions of the entries of a sample. If dropped is set, its text is the empty prompt. The
// values of an entry are read only if it has no key. It fails like Sample.
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

// outline checks an entry, and computes the checksum of its values if it has no key.
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
