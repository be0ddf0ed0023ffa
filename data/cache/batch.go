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
		e := &encoded[i]
		e.Name = s.Image
		text, err := c.get(ctx, c.prompt(s, dropped != nil && dropped(i)), nil, true)
		if err != nil {
			return nil, err
		}
		if e.Text, err = text.embedding(); err != nil {
			return nil, err
		}
		image, err := c.get(ctx, c.imageSlot(s.Image), nil, true)
		if err != nil {
			return nil, err
		}
		e.Latent = image[latentName]
		if s.Control == "" {
			continue
		}
		control, err := c.get(ctx, c.controlSlot(s.Control), nil, true)
		if err != nil {
			return nil, err
		}
		e.Control = control[latentName]
	}
	return Collate(encoded)
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
