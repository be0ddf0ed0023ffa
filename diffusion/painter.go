package diffusion

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/data"
	"github.com/lorafuse/lorafuse/diffusion/dit"
	"github.com/lorafuse/lorafuse/diffusion/flow"
	"github.com/lorafuse/lorafuse/engine"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/host"
	"github.com/lorafuse/lorafuse/nn"
)

// ErrDrawing is wrapped where something cannot be drawn as it is asked for.
var ErrDrawing = errors.New("wrong drawing")

// MaxSteps is more than any schedule gains by.
const MaxSteps = 1000

// Drawing says what is to be drawn. What is zero is as the style of the painter has it.
type Drawing struct {
	Prompt dit.Prompt
	// Negative is what the picture is led away from, nil for nothing.
	Negative *dit.Prompt
	Controls []dit.Latent // pictures that it is made from
	// Frames, Height and Width are the size of the latent; no frames are one.
	Frames, Height, Width int
	Steps                 int
	// Scale is that of guidance by the negative prompt. One that asks for no guidance leaves
	// the negative prompt aside: 1, or 0 for Z-Image; nil is the style's.
	Scale *float64
	// Cap is how many times as long as without guidance a velocity may become by it; 0: it
	// may become as long as it does. Z-Image's cfg_normalization.
	Cap float64
	// Until ends guidance where σ is below 1 − Until; 0: it does not end.
	// Z-Image's cfg_truncation.
	Until float64
	// Told is the guidance that a distilled transformer is told; nil is the style's.
	Told *float64
	// Seed is what the noise is drawn by, that the picture begins as.
	Seed uint64
	// Start is the noise itself, [Channels, Frames, Height, Width], in its place.
	Start []float32
	// Each, if not nil, is called after each step with what there is of the latent, which it
	// must not keep.
	Each func(step, steps int, latent []float32) error
}

// Painter draws with a transformer that a runtime has, and an adapter in a slot. It is not
// safe for concurrent use.
type Painter struct {
	Style Style

	host        *host.Host
	transformer dit.Transformer
	schedule    *flow.Schedule
	rooms       []room
	batch       data.Batch
}

// room is a program that was asked for, which has room for samples up to its bounds.
type room struct {
	shape string // of slots
	spec  engine.Spec
}

// NewPainter returns a painter with the transformer of a host, which stays the caller's.
// Errors: ErrPipeline for a model that draws nothing.
func NewPainter(h *host.Host, s *flow.Schedule, style Style) (*Painter, error) {
	t, ok := h.Model().Config.Family.(dit.Transformer)
	if !ok {
		return nil, fmt.Errorf("diffusion: %w: %s is no diffusion transformer", ErrPipeline, h.Model().Config.Architecture)
	}
	return &Painter{Style: style, host: h, transformer: t, schedule: s}, nil
}

// Close frees what the painter has on the device; the host stays open.
func (p *Painter) Close() {
	p.host.UnloadFunc(func(name string, _ *engine.Program) bool { return name == dit.Velocity })
	p.rooms = nil
}

// Space is what the latents of the transformer are like.
func (p *Painter) Space() dit.Space { return p.transformer.Space() }

// Draw gives the latent of a picture, normalised as the transformer has it, drawn with the
// adapter of a slot. Errors: ErrDrawing, dit.ErrSample, those of the device, of ctx, and of
// d.Each.
func (p *Painter) Draw(ctx context.Context, slot *engine.Slot, d Drawing) (dit.Latent, error) {
	if err := p.settle(&d); err != nil {
		return dit.Latent{}, err
	}
	x, err := p.begin(d)
	if err != nil {
		return x, err
	}
	s := dit.Sample{Latent: x, Controls: d.Controls, Prompt: d.Prompt, Guidance: float32(*d.Told)}
	spec := p.room(slot, d, s)
	tokens := p.transformer.Bounds(1, s)[dit.PredictedTokens]
	levels := p.Style.levels(p.schedule, tokens, d.Steps)
	for i := range levels.Steps() {
		s.Timestep = levels.Timesteps[i]
		velocity, err := p.velocity(ctx, slot, spec, d, s, tokens)
		if err != nil {
			return x, err
		}
		levels.Step(x.Values, velocity, i)
		if d.Each != nil {
			if err := d.Each(i+1, levels.Steps(), x.Values); err != nil {
				return x, err
			}
		}
	}
	for i, v := range x.Values {
		if v64 := float64(v); math.IsNaN(v64) || math.IsInf(v64, 0) {
			return x, fmt.Errorf("diffusion: the latent has %v at place %d, expected numbers: the transformer or the adapter computes none", v, i)
		}
	}
	return x, nil
}

// settle fills in what the style says, and checks the rest.
func (p *Painter) settle(d *Drawing) error {
	if d.Frames == 0 {
		d.Frames = 1
	}
	if d.Steps == 0 {
		d.Steps = p.Style.Steps
	}
	if d.Scale == nil {
		d.Scale = &p.Style.Scale
	}
	if d.Told == nil {
		d.Told = &p.Style.Told
	}
	space := p.Space()
	switch {
	case d.Steps < 1 || d.Steps > MaxSteps:
		return fmt.Errorf("diffusion: %w: found %d steps, expected 1 to %d", ErrDrawing, d.Steps, MaxSteps)
	case d.Height < 1 || d.Width < 1 || d.Height%space.Multiple != 0 || d.Width%space.Multiple != 0:
		return fmt.Errorf("diffusion: %w: found a latent of %d×%d, expected multiples of %d", ErrDrawing, d.Width, d.Height, space.Multiple)
	case d.Cap < 0 || d.Until < 0 || !finite(d.Cap) || !finite(d.Until):
		return fmt.Errorf("diffusion: %w: found a cap of guidance of %v until %v, expected numbers of at least 0", ErrDrawing, d.Cap, d.Until)
	case !finite(*d.Scale) || !finite(*d.Told):
		return fmt.Errorf("diffusion: %w: found guidance %v and %v, expected numbers", ErrDrawing, *d.Scale, *d.Told)
	}
	if !p.Style.Guided(*d) {
		d.Negative = nil
	}
	return nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// begin is the noise that a picture begins as.
func (p *Painter) begin(d Drawing) (dit.Latent, error) {
	x := dit.Latent{Channels: p.Space().Channels, Frames: d.Frames, Height: d.Height, Width: d.Width}
	n := x.Channels * x.Frames * x.Height * x.Width
	x.Values = make([]float32, n)
	if d.Start == nil {
		flow.NewDraw(d.Seed, 0, 0).Noise(x.Values)
	} else if copy(x.Values, d.Start); len(d.Start) != n {
		return x, fmt.Errorf("diffusion: %w: found %d values to start from, expected %d for %d×%d×%d×%d", ErrDrawing, len(d.Start), n, x.Channels, x.Frames, x.Height, x.Width)
	}
	return x, nil
}

// velocity is where the picture lies, by the transformer and guidance.
func (p *Painter) velocity(ctx context.Context, slot *engine.Slot, spec engine.Spec, d Drawing, s dit.Sample, tokens int) ([]float32, error) {
	rows, err := p.rows(ctx, slot, spec, s)
	if err != nil {
		return nil, err
	}
	picture := (1000 - s.Timestep) / 1000 // how much of it there is
	if d.Negative != nil && (d.Until == 0 || float64(picture) <= d.Until) {
		s.Prompt = *d.Negative
		away, err := p.rows(ctx, slot, spec, s)
		if err != nil {
			return nil, err
		}
		limit := float32(d.Cap) * flow.Norm(rows)
		p.Style.Guidance.Combine(rows, away, *d.Scale, len(rows)/tokens)
		if d.Cap > 0 {
			flow.Shorten(rows, limit)
		}
	}
	all, err := p.transformer.Unpack(rows, 1, s.Latent)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// rows is what the transformer says of a sample.
func (p *Painter) rows(ctx context.Context, slot *engine.Slot, spec engine.Spec, s dit.Sample) ([]float32, error) {
	if err := p.transformer.Arrays(&p.batch, []dit.Sample{s}); err != nil {
		return nil, err
	}
	results, err := p.host.Compute(ctx, slot, spec, &p.batch, spec.Bounds[nn.Tokens])
	if err != nil {
		return nil, err
	}
	return results.Get(ctx, dit.Velocity)
}

// textStep is what the number of tokens of a text is rounded up to, so that texts of about
// the same length share a program.
const textStep = 32

// room returns the spec of a program for a drawing: of one that is there and has room, or of a
// new one.
func (p *Painter) room(slot *engine.Slot, d Drawing, s dit.Sample) engine.Spec {
	spec := p.spec(d, s)
	for _, have := range p.rooms {
		if have.shape == slot.Shape() && covers(have.spec.Bounds, spec.Bounds) {
			return have.spec
		}
	}
	p.rooms = append(p.rooms, room{slot.Shape(), spec})
	return spec
}

// spec is a program with room for a drawing: for its texts, rounded up.
func (p *Painter) spec(d Drawing, s dit.Sample) engine.Spec {
	text := len(s.Prompt.Values) / max(1, s.Prompt.Features)
	if d.Negative != nil {
		text = max(text, len(d.Negative.Values)/max(1, d.Negative.Features))
	}
	s.Prompt = dit.Prompt{Features: s.Prompt.Features, Mask: make([]bool, max(1, (text+textStep-1)/textStep)*textStep)}
	return engine.Spec{Name: dit.Velocity, Bounds: p.transformer.Bounds(1, s), Build: func(b *nn.Builder, g *graph.Program) {
		g.Result(dit.Velocity, p.host.Model().Build(b).Output(b, dit.Velocity))
	}}
}

// Need is what drawings take on the device until Close, beside the weights of the
// transformer, in bytes. Errors: those of Draw.
func (p *Painter) Need(slot *engine.Slot, drawings []Drawing) (int64, error) {
	var all []engine.Spec
	var loads [][]*engine.Draft
	for _, d := range drawings {
		if err := p.settle(&d); err != nil {
			return 0, err
		}
		latent := dit.Latent{Channels: p.Space().Channels, Frames: d.Frames, Height: d.Height, Width: d.Width}
		spec := p.spec(d, dit.Sample{Latent: latent, Controls: d.Controls, Prompt: d.Prompt})
		if slices.ContainsFunc(all, func(have engine.Spec) bool { return covers(have.Bounds, spec.Bounds) }) {
			continue
		}
		draft, err := p.host.Plan(slot, spec)
		if err != nil {
			return 0, err
		}
		all, loads = append(all, spec), append(loads, []*engine.Draft{draft})
	}
	return p.host.Takes(loads...)
}

// covers reports whether a program has room: axes that other sizes than planned for would
// change are those of all.
func covers(have, want map[string]int) bool {
	if len(have) != len(want) {
		return false
	}
	for axis, n := range want {
		if have[axis] < n {
			return false
		}
	}
	return true
}
