package cache

import "context"

// Batch reads the entries of the samples and collates them. Where dropped says
// so of a sample, its caption gives way to the empty prompt; nil drops none. A
// source is not looked at again once this Cache has found its entry fresh.
//
// Nothing is built: it fails with ErrMissing, ErrStale, ErrCorrupt and
// ErrUnkeyed, and as Collate does.
func (c *Cache) Batch(ctx context.Context, samples []Sample, dropped func(sample int) bool) (*Batch, error) {
	encoded := make([]Encoded, len(samples))
	for i, s := range samples {
		var err error
		if encoded[i], err = c.Sample(ctx, s, dropped != nil && dropped(i)); err != nil {
			return nil, err
		}
	}
	return Collate(encoded)
}

// Sample reads the entries of one sample, with that of the empty prompt for its text
// where its caption is dropped. See Batch for what is built and looked at, and for errors.
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

// prompt is the entry for the caption of a sample, or for the empty prompt in
// its place: the sample's own, where its text was encoded with an image.
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
