package diffusion

import (
	"context"
	"errors"
	"fmt"
	"image"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/vae"
	"github.com/lorafuse/lorafuse/internal/model"
)

// colours is the number of channels of an image.
const colours = 3

// Canvas decodes latents to images with the autoencoder of a pipeline. If the pipeline has
// none, the transformer works on pixels, or on squares of pixels (dit.Latent.Fold), and
// latents are converted directly.
type Canvas struct {
	// Pixels is the number of image pixels per latent position, along each side.
	Pixels int
	// Multiple is the divisor of image sides.
	Multiple int

	dir   string                 // folder of the autoencoder; empty if there is none
	fetch func() (string, error) // downloads the weights if necessary, and returns dir
	fold  int                    // autoencoder positions per latent position, along each side
	scale *vae.Scale
	vae   *vae.VAE
	notes *notes
}

// Canvas returns the decoder for the latents of a transformer. It loads nothing to a device
// until Open. Errors: ErrPart if there is no autoencoder and the latents are not pixels,
// ErrPipeline if the autoencoder has other latents, and errors of package vae.
func (p *Pipeline) Canvas(space dit.Space) (*Canvas, error) {
	if _, listed := p.Parts[VAE]; !listed {
		if side := folds(space.Channels, colours); side > 0 {
			return &Canvas{Pixels: side, Multiple: side * space.Multiple, fold: side}, nil
		}
	}
	dir, s, err := p.autoencoder()
	if err != nil {
		return nil, err
	}
	c := &Canvas{dir: dir, notes: p.notes, fetch: func() (string, error) { return p.Weights(VAE) }, fold: folds(space.Channels, s.Channels)}
	if c.fold == 0 {
		return nil, fmt.Errorf("diffusion: %w: the latents of %s have %d channels, those of the transformer %d", ErrPipeline, dir, s.Channels, space.Channels)
	}
	c.Pixels = c.fold * s.Pixels
	c.Multiple = c.Pixels * space.Multiple
	if c.scale, err = vae.ReadScale(dir, c.fetch); err == nil && space.Unshifted {
		clear(c.scale.Mean)
	}
	return c, err
}

// autoencoder returns the folder of the autoencoder and the layout of its latents. Errors:
// ErrPart, ErrPipeline, and errors of model.ReadConfig.
func (p *Pipeline) autoencoder() (dir string, s vae.Space, err error) {
	if dir, err = p.Folder(VAE); err != nil {
		return dir, s, err
	}
	c, err := model.ReadConfig(dir)
	if err != nil {
		return dir, s, err
	}
	a, ok := c.Family.(vae.Autoencoder)
	if !ok {
		return dir, s, fmt.Errorf("diffusion: %w: %s is a %s, expected an autoencoder", ErrPipeline, dir, c.Architecture)
	}
	return dir, a.Space(), nil
}

// folds returns the side of the squares whose positions were folded into channels, turning
// channels into more. It returns 0 if no square fits.
func folds(more, channels int) int {
	for side := 1; side*side*channels <= more; side++ {
		if side*side*channels == more {
			return side
		}
	}
	return 0
}

// Latent returns the latent size for an image size. Errors: ErrDrawing if the sides are not
// multiples of c.Multiple.
func (c *Canvas) Latent(width, height int) (w, h int, err error) {
	if width < 1 || height < 1 || width%c.Multiple != 0 || height%c.Multiple != 0 {
		return 0, 0, fmt.Errorf("diffusion: %w: found a size of %dx%d, expected multiples of %d, such as %dx%d",
			ErrDrawing, width, height, c.Multiple, nearest(width, c.Multiple), nearest(height, c.Multiple))
	}
	return width / c.Pixels, height / c.Pixels, nil
}

func nearest(x, multiple int) int { return max(1, (x+multiple/2)/multiple) * multiple }

// CheckTiles returns an error if the autoencoder does not support the tile size. It works
// before Open. Errors: vae.ErrOption.
func (c *Canvas) CheckTiles(o vae.Options) error {
	if c.dir == "" {
		return nil
	}
	return o.Check(c.Pixels / c.fold)
}

// Fetch downloads the weights of the autoencoder if necessary, so that Open need not wait.
// Errors: errors of Pipeline.Weights.
func (c *Canvas) Fetch() (err error) {
	if c.dir != "" {
		_, err = c.fetch()
	}
	return err
}

// Open loads the autoencoder to a device. Errors: errors of Fetch and vae.Open.
func (c *Canvas) Open(dev backend.Device, o vae.Options) error {
	if c.dir == "" || c.vae != nil {
		return nil
	}
	if err := c.Fetch(); err != nil {
		return err
	}
	v, err := vae.Open(dev, c.dir, o)
	if err != nil {
		return err
	}
	c.vae = v
	c.notes.add(v.UnreadLine())
	return nil
}

// Close frees the autoencoder. The canvas may be opened again.
func (c *Canvas) Close() error {
	if c.vae == nil {
		return nil
	}
	err := c.vae.Close()
	c.vae = nil
	return err
}

// With calls f while the autoencoder is on a device. Errors: errors of Open, f and Close.
func (c *Canvas) With(dev backend.Device, o vae.Options, f func() error) error {
	if err := c.Open(dev, o); err != nil {
		return err
	}
	return errors.Join(f(), c.Close())
}

// Images decodes latents on a device, and calls each after every image. Errors: errors of With
// and Paint.
func (c *Canvas) Images(ctx context.Context, dev backend.Device, o vae.Options, latents []dit.Latent, each func(done int)) (images []image.Image, err error) {
	err = c.With(dev, o, func() error {
		for i, x := range latents {
			p, err := c.Paint(ctx, x)
			if err != nil {
				return err
			}
			images = append(images, Image(p))
			each(i + 1)
		}
		return nil
	})
	return images, err
}

// Encode returns the latent of an image: the mean of the autoencoder's distribution,
// normalized for the transformer. The canvas must be open. Errors: errors of vae.VAE.Encode.
func (c *Canvas) Encode(ctx context.Context, p vae.Picture) (dit.Latent, error) {
	if c.dir == "" {
		x := dit.Latent{Channels: p.Channels, Frames: 1, Height: p.Height, Width: p.Width, Values: p.Values}
		return x.Fold(c.fold), nil
	}
	m, err := c.vae.Encode(ctx, p)
	if err != nil {
		return dit.Latent{}, err
	}
	c.Normalise(m.Mean)
	return m.Mean.Fold(c.fold), nil
}

// Need returns the device memory for decoding latents, in bytes. It uses only the height and
// width of latents. Errors: errors of Fetch, vae.Open and vae.VAE.Need.
func (c *Canvas) Need(dev backend.Device, o vae.Options, latents ...dit.Latent) (n int64, err error) {
	if c.dir == "" {
		return 0, nil
	}
	if err := c.Fetch(); err != nil {
		return 0, err
	}
	v, err := vae.Open(dev, c.dir, o)
	if err != nil {
		return 0, err
	}
	for i := range latents {
		latents[i].Height *= c.fold
		latents[i].Width *= c.fold
	}
	n, err = v.Need(latents...)
	return n, errors.Join(err, v.Close())
}

// Paint decodes a normalized latent to an image. The canvas must be open. Errors: errors of
// vae.VAE.Decode, ErrDrawing for values that are not an image.
func (c *Canvas) Paint(ctx context.Context, x dit.Latent) (vae.Picture, error) {
	x = x.Unfold(c.fold)
	if c.dir == "" {
		return vae.Picture{Channels: x.Channels, Height: x.Height, Width: x.Width, Values: x.Values}, nil
	}
	c.scale.Denormalise(x)
	p, err := c.vae.Decode(ctx, x)
	if err != nil {
		return p, err
	}
	for i, v := range p.Values {
		if v-v != 0 {
			return p, fmt.Errorf("diffusion: %w: %s makes %v of the latent at place %d of the picture, expected numbers", ErrDrawing, c.dir, v, i)
		}
	}
	return p, nil
}
