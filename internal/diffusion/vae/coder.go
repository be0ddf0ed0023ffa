package vae

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
)

// Options configures tiling.
type Options struct {
	// Tile is the side in pixels of the square tiles in which larger images are encoded and
	// decoded to save memory. Zero means no tiling. Tiling changes the result slightly,
	// since tiles do not see each other.
	Tile int
	// Overlap is the width in pixels of the blended area of adjacent tiles. Zero means a
	// quarter of Tile.
	Overlap int
}

// VAE is an autoencoder on a device. It is not safe for concurrent use.
type VAE struct {
	model   *model.Model
	family  Autoencoder
	space   Space
	host    *host.Host
	slot    *engine.Slot
	tile    int // rows and columns of latents; zero means no tiling
	overlap int
	batch   data.Batch
}

// Open loads the autoencoder in dir, a diffusers folder with config.json and weights, to a
// device. It computes in the precision of the device, whatever the dtype of the weights. Errors: ErrModel, ErrOption,
// and errors of model.Open.
func Open(dev backend.Device, dir string, o Options) (_ *VAE, err error) {
	m, err := model.Open(dir)
	if err != nil {
		return nil, err
	}
	v := &VAE{model: m}
	defer func() {
		if err != nil {
			m.Close()
			err = fmt.Errorf("vae: %s: %w", filepath.Clean(dir), err)
		}
	}()
	if v.family, err = of(m.Config); err != nil {
		return nil, err
	}
	v.space = v.family.Space()
	if err := v.divide(o); err != nil {
		return nil, err
	}
	v.host = host.Open(dev, m)
	if v.slot, err = v.host.NewSlot(nil); err != nil {
		return nil, err
	}
	return v, nil
}

// UnreadLine returns a line about unused tensors. See [model.Model.UnreadLine].
func (v *VAE) UnreadLine() string { return v.model.UnreadLine() }

// divide sets the sizes of tiles.
func (v *VAE) divide(o Options) error {
	p := v.space.Pixels
	if err := o.Check(p); err != nil {
		return err
	}
	v.tile, v.overlap = o.Tile/p, o.overlap(p)/p
	return nil
}

func (o Options) overlap(pixels int) int {
	if o.Overlap == 0 {
		return o.Tile / pixels / 4 * pixels
	}
	return o.Overlap
}

// Check returns an error for tiles that an autoencoder with the given pixels per latent
// position (Space.Pixels) does not support. Errors: ErrOption.
func (o Options) Check(pixels int) error {
	if o.Tile == 0 && o.Overlap == 0 {
		return nil
	}
	p := pixels
	o.Overlap = o.overlap(p)
	if o.Tile <= 0 || o.Tile%p != 0 || o.Overlap < 0 || o.Overlap%p != 0 || 2*o.Overlap > o.Tile {
		return fmt.Errorf("%w: tiles of %d pixels that overlap by %d, expected multiples of %d and an overlap of half a tile at most", ErrOption, o.Tile, o.Overlap, p)
	}
	return nil
}

// Close frees the device memory and the weights.
func (v *VAE) Close() error {
	v.host.Close()
	v.slot.Free()
	return v.model.Close()
}

// Space returns the layout of latents.
func (v *VAE) Space() Space { return v.space }

// largestSide is the maximum side of an image, in pixels.
const largestSide = 1 << 16

// Encode returns the moments of an image with Space.Colours channels, whose sides must be
// multiples of Space.Multiple. They are not normalized: see [ReadScale]. Errors: ErrSize, and
// errors of the device.
func (v *VAE) Encode(ctx context.Context, p Picture) (Moments, error) {
	s := v.space
	if err := v.check(p); err != nil {
		return Moments{}, fmt.Errorf("vae: %w", err)
	}
	y, err := v.run(ctx, encoder, p, p.Height/s.Pixels, p.Width/s.Pixels)
	if err != nil {
		return Moments{}, fmt.Errorf("vae: %w", err)
	}
	z := dit.Latent{Channels: s.Channels, Frames: 1, Height: y.Height, Width: y.Width}
	m := Moments{z, z}
	n := len(y.Values) / 2
	m.Mean.Values, m.LogVar.Values = y.Values[:n:n], y.Values[n:]
	for i, x := range m.LogVar.Values {
		m.LogVar.Values[i] = min(max(x, leastLogVar), mostLogVar)
	}
	return m, nil
}

func (v *VAE) check(p Picture) error {
	s := v.space
	switch {
	case p.Channels != s.Colours:
		return fmt.Errorf("%w: a picture of %d channels, %s takes %d", ErrSize, p.Channels, v.model.Config.Architecture, s.Colours)
	case p.Height < s.Multiple || p.Width < s.Multiple || p.Height%s.Multiple != 0 || p.Width%s.Multiple != 0:
		return fmt.Errorf("%w: a picture of %d by %d pixels, %s takes multiples of %d", ErrSize, p.Width, p.Height, v.model.Config.Architecture, s.Multiple)
	case p.Height > largestSide || p.Width > largestSide:
		return fmt.Errorf("%w: a picture of %d by %d pixels, at most %d by %d", ErrSize, p.Width, p.Height, largestSide, largestSide)
	case len(p.Values) != p.Channels*p.Height*p.Width:
		return fmt.Errorf("%w: %d values of a picture of %d by %d pixels and %d channels", ErrSize, len(p.Values), p.Width, p.Height, p.Channels)
	}
	return nil
}

// Decode returns the image of a latent, which must not be normalized. Pixels may slightly
// exceed the range −1 to 1. Errors: ErrSize, and errors of the device.
func (v *VAE) Decode(ctx context.Context, z dit.Latent) (Picture, error) {
	s := v.space
	limit := largestSide / s.Pixels
	switch {
	case z.Frames != 1:
		return Picture{}, fmt.Errorf("vae: %w: a latent of %d frames, %s decodes one", ErrSize, z.Frames, v.model.Config.Architecture)
	case z.Channels != s.Channels:
		return Picture{}, fmt.Errorf("vae: %w: a latent of %d channels, %s has %d", ErrSize, z.Channels, v.model.Config.Architecture, s.Channels)
	case z.Height < 1 || z.Width < 1 || z.Height > limit || z.Width > limit:
		return Picture{}, fmt.Errorf("vae: %w: a latent of %d by %d, expected 1 to %d", ErrSize, z.Width, z.Height, limit)
	case len(z.Values) != z.Channels*z.Height*z.Width:
		return Picture{}, fmt.Errorf("vae: %w: %d values of a latent of %d by %d and %d channels", ErrSize, len(z.Values), z.Width, z.Height, z.Channels)
	}
	p, err := v.run(ctx, decoder, Picture{z.Channels, z.Height, z.Width, z.Values}, z.Height, z.Width)
	if err != nil {
		return Picture{}, fmt.Errorf("vae: %w", err)
	}
	if v.family.clamped() {
		for i, x := range p.Values {
			p.Values[i] = min(max(x, -1), 1)
		}
	}
	return p, nil
}
