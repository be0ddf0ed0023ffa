package diffusion

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/flow"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// ErrDrawing is wrapped if a drawing has unsupported parameters.
var ErrDrawing = errors.New("wrong drawing")

// MaxSteps is the maximum number of steps. No schedule gains from more.
const MaxSteps = 1000

// Drawing holds the parameters of a generated image. Zero values mean the defaults of the
// painter's style.
type Drawing struct {
	Prompt dit.Prompt
	// Negative is the negative prompt. Nil means none.
	Negative *dit.Prompt
	Controls []dit.Latent // of control images
	// Frames, Height and Width are the size of the latent. Zero Frames means 1.
	Frames, Height, Width int
	Steps                 int
	// Scale is the scale of classifier-free guidance. At a scale without guidance (1, or 0
	// for Z-Image) the negative prompt is not used. Nil means the scale of the style.
	Scale *float64
	// Cap limits the norm of the guided velocity to Cap times the norm without guidance
	// (Z-Image's cfg_normalization). Zero means no limit.
	Cap float64
	// Until ends guidance when σ falls below 1 − Until (Z-Image's cfg_truncation). Zero
	// means that guidance does not end.
	Until float64
	// Told is the guidance embedding of a distilled transformer. Nil means that of the
	// style.
	Told *float64
	// Seed seeds the initial noise.
	Seed uint64
	// Start replaces the initial noise, [Channels, Frames, Height, Width].
	Start []float32
	// Each, if not nil, is called after each step with the current latent, which it must not
	// retain.
	Each func(step, steps int, latent []float32) error
}

// SetGuidance sets the strength of the prompt for a transformer of space s: its guidance embedding
// if it has one, or else the scale of classifier-free guidance.
func (d *Drawing) SetGuidance(s dit.Space, strength float64) {
	if s.Guidance {
		d.Told = &strength
	} else {
		d.Scale = &strength
	}
}

// Painter generates images with a transformer on a runtime and an adapter in a slot. It is
// not safe for concurrent use.
type Painter struct {
	Style Style

	host        *host.Host
	transformer dit.Transformer
	schedule    *flow.Schedule
	rooms       []room
	batch       data.Batch
}

// room identifies a compiled program, which accepts samples up to its bounds.
type room struct {
	shape string // of the slot (engine.Slot.Shape)
	spec  engine.Spec
}

// NewPainter returns a painter for the transformer of a host, which the caller still owns.
// Errors: ErrPipeline for a model that is not a diffusion transformer.
func NewPainter(h *host.Host, s *flow.Schedule, style Style) (*Painter, error) {
	t, ok := h.Model().Config.Family.(dit.Transformer)
	if !ok {
		return nil, fmt.Errorf("diffusion: %w: %s is no diffusion transformer", ErrPipeline, h.Model().Config.Architecture)
	}
	return &Painter{Style: style, host: h, transformer: t, schedule: s}, nil
}

// Close frees the painter's programs. The host stays open.
func (p *Painter) Close() {
	p.host.UnloadFunc(func(name string, _ *engine.Program) bool { return name == dit.Velocity })
	p.rooms = nil
}

// Space returns the layout of the transformer's latents.
func (p *Painter) Space() dit.Space { return p.transformer.Space() }

// Draw generates the latent of an image with the adapter of a slot. The latent is normalized
// for the transformer. Errors: ErrDrawing, dit.ErrSample, and errors of the device, of ctx
// and of d.Each.
func (p *Painter) Draw(ctx context.Context, slot *engine.Slot, d Drawing) (dit.Latent, error) {
	if err := d.settle(&p.Style, p.Space()); err != nil {
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

// settle fills in the defaults of a style and validates the parameters for a transformer.
func (d *Drawing) settle(style *Style, space dit.Space) error {
	if d.Frames == 0 {
		d.Frames = 1
	}
	if d.Steps == 0 {
		d.Steps = style.Steps
	}
	if d.Scale == nil {
		d.Scale = &style.Scale
	}
	if d.Told == nil {
		d.Told = &style.Told
	}
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
	if !style.Guided(*d) {
		d.Negative = nil
	}
	return nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// begin returns the initial noise.
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

// velocity returns the predicted velocity, with guidance if it is active.
func (p *Painter) velocity(ctx context.Context, slot *engine.Slot, spec engine.Spec, d Drawing, s dit.Sample, tokens int) ([]float32, error) {
	rows, err := p.rows(ctx, slot, spec, s)
	if err != nil {
		return nil, err
	}
	picture := (1000 - s.Timestep) / 1000 // progress from noise to image, 0 to 1
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

// rows runs the transformer on a sample and returns its output.
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

// textStep is the unit to which the number of text tokens is rounded up, so that prompts of
// similar length share a program.
const textStep = 32

// room returns the spec of a program for a drawing: an existing program that is large enough,
// or a new one.
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

// spec returns the spec of a program for a drawing, with its number of text tokens rounded
// up.
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

// Need returns the device memory that drawings use until Close, in addition to the weights of
// the transformer, in bytes. Errors: errors of Draw.
func (p *Painter) Need(slot *engine.Slot, drawings []Drawing) (int64, error) {
	var all []engine.Spec
	var loads [][]*engine.Draft
	for _, d := range drawings {
		if err := d.settle(&p.Style, p.Space()); err != nil {
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

// covers reports whether a program with the bounds have accepts samples of the bounds want.
// Axes whose planned size changes the result must be equal.
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
