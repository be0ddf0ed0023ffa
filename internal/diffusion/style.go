package diffusion

import (
	"github.com/lorafuse/lorafuse/internal/diffusion/flow"
	"github.com/lorafuse/lorafuse/internal/model"
)

// Style holds the inference defaults of an architecture.
type Style struct {
	Steps    int
	Guidance flow.Guidance
	// Scale is the scale of guidance, used if there is a negative prompt.
	Scale float64
	// Told is the guidance embedding of a distilled transformer.
	Told float64
	// Negative is the default negative prompt. Nil means none.
	Negative *string
	// Sigmas are the noise levels before shifting, for runs with as many steps. Nil means
	// evenly spaced levels.
	Sigmas []float64
	// mu computes the dynamic shift. Nil means that of the schedule.
	mu func(tokens, steps int) float64
	// single computes evenly spaced levels in float32.
	single bool
	// table derives the noise levels from the training levels.
	table bool
}

// Style returns the inference defaults of the pipeline for a transformer with config c, as in
// diffusers. Distilled transformers use four steps and no guidance.
func (p *Pipeline) Style(c *model.Config) Style {
	s := styleOf(c.Architecture, guided(c.Family))
	if p.Distilled {
		s.Steps, s.Scale, s.Negative = 4, s.Guidance.None(), nil
	}
	if len(p.Sigmas) > 0 {
		s.Steps, s.Sigmas = len(p.Sigmas), p.Sigmas
	}
	return s
}

// Guided reports whether a drawing uses classifier-free guidance if it has a negative prompt.
func (s Style) Guided(d Drawing) bool {
	scale := s.Scale
	if d.Scale != nil {
		scale = *d.Scale
	}
	return s.Guidance.Asks(scale)
}

// levels returns the noise levels for an image with the given number of tokens.
func (s Style) levels(schedule *flow.Schedule, tokens, steps int) flow.Levels {
	mu := schedule.Mu(tokens)
	if s.mu != nil {
		mu = s.mu(tokens, steps)
	}
	switch {
	case steps == len(s.Sigmas):
		return schedule.SampleFrom(s.Sigmas, mu)
	case s.table:
		return schedule.SampleTable(steps, mu)
	case s.single:
		return schedule.SampleSingle(steps, mu)
	}
	return schedule.Sample(steps, mu)
}
