package vae

import (
	"context"
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/diffusion/dit"
	"github.com/lorafuse/lorafuse/engine"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/nn"
)

// coder is a half of an autoencoder.
type coder struct {
	input, output string
	emit          func(Autoencoder, *nn.Builder) graph.Tensor
	in, out       func(Space) side
}

// side is what one end of a coder is like.
type side struct {
	channels int
	pixels   int // rows for each of a latent
}

func latents(s Space) side { return side{s.Channels, 1} }

func colours(s Space) side { return side{s.Colours, s.Pixels} }

func painted(s Space) side { return side{s.Painted, s.Pixels} }

var (
	encoder = &coder{Pixels, moments, emitEncoder, colours, func(s Space) side { return side{2 * s.Channels, 1} }}
	decoder = &coder{Latent, decoded, emitDecoder, latents, painted}
)

// size is how large a latent is.
type size struct{ rows, columns int }

// programs are those by which a coder computes latents of a size, in one arena: one, or
// with tiles one for each of their sizes.
type programs struct {
	coder *coder
	whole size
	bytes int64 // of the arena
	sizes []size
	runs  []*engine.Program
}

// keptBytes is how much memory the programs may have that are kept for pictures to come.
const keptBytes = 1 << 30

// load gives the programs of a size, and unloads others that were not used for long.
func (v *VAE) load(ctx context.Context, c *coder, whole size, sizes []size) (*programs, error) {
	i := slices.IndexFunc(v.programs, func(p *programs) bool { return p.coder == c && p.whole == whole })
	if i >= 0 {
		p := v.programs[i]
		v.programs = append(slices.Delete(v.programs, i, i+1), p)
		return p, nil
	}
	p := &programs{coder: c, whole: whole, sizes: sizes}
	drafts, err := v.plan(c, sizes)
	if err != nil {
		return nil, err
	}
	need, err := v.runtime.Need(drafts...)
	if err != nil {
		return nil, err
	}
	p.bytes = need.Arena
	v.unload(keptBytes - p.bytes)
	if p.runs, err = v.runtime.Load(ctx, v.slot, nil, drafts...); err != nil {
		return nil, err
	}
	v.programs = append(v.programs, p)
	return p, nil
}

// plan plans the programs of sizes.
func (v *VAE) plan(c *coder, sizes []size) (drafts []*engine.Draft, err error) {
	for _, s := range sizes {
		d, err := v.runtime.Plan(v.slot, engine.Spec{
			Bounds: map[string]int{Rows: s.rows, Columns: s.columns},
			Build:  func(b *nn.Builder, g *graph.Program) { g.Result(c.result(s), c.emit(v.family, b)) },
		})
		if err != nil {
			return nil, err
		}
		drafts = append(drafts, d)
	}
	return drafts, nil
}

// Need is what decoding latents takes on the device, in bytes: the weights of the decoder, and
// the programs of each size. Of latents the height and the width are read. Errors: those of
// the device.
func (v *VAE) Need(latents ...dit.Latent) (int64, error) {
	weights, seen := int64(0), map[size]bool{}
	var loads [][]*engine.Draft
	for _, z := range latents {
		whole := size{z.Height, z.Width}
		if seen[whole] {
			continue
		}
		seen[whole] = true
		_, _, sizes := v.tiles(z.Height, z.Width)
		drafts, err := v.plan(decoder, sizes)
		if err != nil {
			return 0, err
		}
		loads, weights = append(loads, drafts), v.runtime.Weights(drafts[0])
	}
	n, err := v.runtime.Takes(loads...)
	return n + weights, err
}

// unload frees programs, those first that were not used for longest, until they have no
// more memory than so much.
func (v *VAE) unload(limit int64) {
	total := int64(0)
	for _, p := range v.programs {
		total += p.bytes
	}
	for len(v.programs) > 0 && total > limit {
		p := v.programs[0]
		total -= p.bytes
		v.runtime.Unload(p.runs...)
		v.programs = v.programs[1:]
	}
}

// result is what the program of a size gives.
func (c *coder) result(s size) string { return fmt.Sprintf("%s %dx%d", c.output, s.rows, s.columns) }

// compute gives what a coder makes of x, whose latent has the size s.
func (v *VAE) compute(ctx context.Context, p *programs, s size, x Picture) (Picture, error) {
	v.batch.SetFloats(p.coder.input, byPixel(x))
	if err := p.runs[slices.Index(p.sizes, s)].Run(ctx, v.slot, &v.batch, 1); err != nil {
		return Picture{}, err
	}
	out := p.coder.out(v.space)
	y := Picture{Channels: out.channels, Height: s.rows * out.pixels, Width: s.columns * out.pixels}
	rows := make([]float32, y.Channels*y.Height*y.Width)
	if err := v.runtime.Read(ctx, p.coder.result(s), rows); err != nil {
		return Picture{}, err
	}
	y.Values = byChannels(rows, y.Channels)
	return y, nil
}

// byPixel gives values [h, w, c].
func byPixel(p Picture) []float32 {
	rows, n := make([]float32, len(p.Values)), p.Height*p.Width
	for c := range p.Channels {
		for i, x := range p.Values[c*n : (c+1)*n] {
			rows[i*p.Channels+c] = x
		}
	}
	return rows
}

// byChannels undoes byPixel.
func byChannels(rows []float32, channels int) []float32 {
	values, n := make([]float32, len(rows)), len(rows)/channels
	for c := range channels {
		for i := range n {
			values[c*n+i] = rows[i*channels+c]
		}
	}
	return values
}
