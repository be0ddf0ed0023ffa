package vae

import (
	"context"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// coder is the encoder or the decoder of an autoencoder.
type coder struct {
	input, output string
	emit          func(Autoencoder, *nn.Builder) graph.Tensor
	in, out       func(Space) side
}

// side describes the input or output of a coder.
type side struct {
	channels int
	pixels   int // rows per latent row
}

func latents(s Space) side { return side{s.Channels, 1} }

func colours(s Space) side { return side{s.Colours, s.Pixels} }

func painted(s Space) side { return side{s.Painted, s.Pixels} }

var (
	encoder = &coder{Pixels, moments, emitEncoder, colours, func(s Space) side { return side{2 * s.Channels, 1} }}
	decoder = &coder{Latent, decoded, emitDecoder, latents, painted}
)

// size is the size of a latent.
type size struct{ rows, columns int }

// spec returns the program that runs a coder for latents of a size.
func (v *VAE) spec(c *coder, s size) engine.Spec {
	return engine.Spec{
		Name:       c.output,
		Bounds:     map[string]int{Rows: s.rows, Columns: s.columns},
		FixedSizes: true,
		Build:      func(b *nn.Builder, g *graph.Program) { g.Result(c.output, c.emit(v.family, b)) },
	}
}

// specs returns the programs for several sizes.
func (v *VAE) specs(c *coder, sizes []size) (all []engine.Spec) {
	for _, s := range sizes {
		all = append(all, v.spec(c, s))
	}
	return all
}

// Need returns the device memory for decoding latents, in bytes: the weights of the decoder
// and the programs of each size. It uses only the height and width of latents. Errors: errors
// of the device.
func (v *VAE) Need(latents ...dit.Latent) (int64, error) {
	weights, seen := int64(0), map[size]bool{}
	var loads [][]*engine.Draft
	for _, z := range latents {
		_, _, sizes := v.tiles(z.Height, z.Width)
		var drafts []*engine.Draft
		for _, s := range sizes {
			if seen[s] {
				continue
			}
			seen[s] = true
			d, err := v.host.Plan(v.slot, v.spec(decoder, s))
			if err != nil {
				return 0, err
			}
			drafts, weights = append(drafts, d), v.host.Weights(d)
		}
		loads = append(loads, drafts)
	}
	n, err := v.host.Takes(loads...)
	return n + weights, err
}

// compute runs a coder on x, whose latent has size s.
func (v *VAE) compute(ctx context.Context, c *coder, s size, x Picture) (Picture, error) {
	v.batch.SetFloats(c.input, byPixel(x))
	results, err := v.host.Compute(ctx, v.slot, v.spec(c, s), &v.batch, 1)
	if err != nil {
		return Picture{}, err
	}
	rows, err := results.Get(ctx, c.output)
	if err != nil {
		return Picture{}, err
	}
	out := c.out(v.space)
	y := Picture{Channels: out.channels, Height: s.rows * out.pixels, Width: s.columns * out.pixels}
	y.Values = byChannels(rows, y.Channels)
	return y, nil
}

// byPixel returns the values as [h, w, c].
func byPixel(p Picture) []float32 {
	rows, n := make([]float32, len(p.Values)), p.Height*p.Width
	for c := range p.Channels {
		for i, x := range p.Values[c*n : (c+1)*n] {
			rows[i*p.Channels+c] = x
		}
	}
	return rows
}

// byChannels is the inverse of byPixel.
func byChannels(rows []float32, channels int) []float32 {
	values, n := make([]float32, len(rows)), len(rows)/channels
	for c := range channels {
		for i := range n {
			values[c*n+i] = rows[i*channels+c]
		}
	}
	return values
}
