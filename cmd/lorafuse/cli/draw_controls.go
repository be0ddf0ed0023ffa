package cli

import (
	"context"
	"fmt"
	"image"

	"github.com/lorafuse/lorafuse/internal/diffusion"
)

// readControls reads the images of --control in the form that the pipeline expects.
func (d *drawing) readControls() (err error) {
	f := d.flags
	if len(f.controls) == 0 {
		if d.pipeline.Edits() && len(f.prompts) > 0 {
			return fmt.Errorf("draw: --control is missing: a %s draws from pictures", d.pipeline.Class)
		}
		return nil
	}
	if err := d.pipeline.CheckControls(); err != nil {
		if f.adapter == "" {
			return fmt.Errorf("--control: %w, or an adapter that was trained with controls", err)
		}
		d.app.note("note     a %s takes no control image by itself: the adapter must have been trained with controls", d.pipeline.Class)
	}
	var pictures []image.Image
	for _, path := range f.controls {
		m, err := diffusion.ReadImage(path)
		if err != nil {
			return fmt.Errorf("--control: %w", err)
		}
		pictures = append(pictures, m)
	}
	if d.controls, err = d.pipeline.Controls(d.canvas, f.controlSide, pictures...); err != nil {
		return fmt.Errorf("--control: %w", err)
	}
	return nil
}

// size returns the width and height of the images in pixels.
func (d *drawing) size() (width, height int, err error) {
	switch f := d.flags; {
	case f.given("size"):
		return f.width, f.height, nil
	case d.controls != nil:
		return d.controls.Size.Width, d.controls.Size.Height, nil
	case !d.pipeline.Has(diffusion.VAE):
		return 0, 0, fmt.Errorf("draw: --size is missing: the model draws pixels, of any size that is a multiple of %d", d.canvas.Multiple)
	default:
		return f.width, f.height, nil
	}
}

// encodeControls makes latents of the pictures, before the transformer is on the device.
func (d *drawing) encodeControls(ctx context.Context) error {
	if d.controls == nil {
		return nil
	}
	if err := d.canvas.Open(d.dev, d.flags.tiles()); err != nil {
		return err
	}
	defer func() { _ = d.canvas.Close() }()
	var err error
	if d.what.Controls, err = d.controls.Latents(ctx, d.canvas); err != nil {
		return fmt.Errorf("--control: %w", err)
	}
	return nil
}
