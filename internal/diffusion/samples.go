package diffusion

import (
	"context"
	"image"

	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/vae"
	"github.com/lorafuse/lorafuse/internal/engine"
)

// Samples generates the same images repeatedly during training, each next to the base model's
// image from the same noise. It is not safe for concurrent use.
type Samples struct {
	Painter  *Painter
	Canvas   *Canvas // closed; on the device only while it decodes
	Drawings []Drawing
	VAE      vae.Options

	before []image.Image
}

// Draw returns a grid with one row per drawing: without an adapter, and with the adapter of a
// slot. It frees the painter's device memory before it returns. Errors: errors of
// Painter.Draw and Canvas.Paint.
func (s *Samples) Draw(ctx context.Context, slot *engine.Slot) (image.Image, error) {
	defer s.Painter.Close()
	if s.before == nil {
		bare, err := s.Painter.host.NewSlot(nil)
		if err != nil {
			return nil, err
		}
		defer bare.Free()
		if s.before, err = s.draw(ctx, bare); err != nil {
			return nil, err
		}
	}
	after, err := s.draw(ctx, slot)
	if err != nil {
		return nil, err
	}
	var rows [][]image.Image
	for i := range after {
		rows = append(rows, []image.Image{s.before[i], after[i]})
	}
	return Grid(rows), nil
}

// Need returns the device memory that Draw uses in addition to the painter's host, in bytes.
// It is the larger of the needs of the painter's programs and of the autoencoder, which are
// not loaded at the same time. Errors: errors of Draw.
func (s *Samples) Need(slot *engine.Slot) (int64, error) {
	programs, err := s.Painter.Need(slot, s.Drawings)
	if err != nil {
		return 0, err
	}
	var latents []dit.Latent
	for _, d := range s.Drawings {
		latents = append(latents, dit.Latent{Height: d.Height, Width: d.Width})
	}
	autoencoder, err := s.Canvas.Need(s.Painter.host.Device(), s.VAE, latents...)
	return max(programs, autoencoder), err
}

// draw generates the images for one slot. It computes all latents first, because the
// autoencoder is loaded after the transformer's programs are freed.
func (s *Samples) draw(ctx context.Context, slot *engine.Slot) ([]image.Image, error) {
	latents, err := s.latents(ctx, slot)
	if err != nil {
		return nil, err
	}
	s.Painter.Close()
	return s.Canvas.Images(ctx, s.Painter.host.Device(), s.VAE, latents, func(int) {})
}

func (s *Samples) latents(ctx context.Context, slot *engine.Slot) (all []dit.Latent, err error) {
	for _, d := range s.Drawings {
		x, err := s.Painter.Draw(ctx, slot, d)
		if err != nil {
			return nil, err
		}
		all = append(all, x)
	}
	return all, nil
}
