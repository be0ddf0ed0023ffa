package diffusion

import (
	"github.com/lorafuse/lorafuse/diffusion/flow"
	"github.com/lorafuse/lorafuse/model"
)

// Style is how the pipelines of an architecture draw, unless they are told otherwise.
type Style struct {
	Steps    int
	Guidance flow.Guidance
	// Scale is that of guidance by a negative prompt, where one is given or Negative is one.
	Scale float64
	// Told is the guidance that a distilled transformer is told.
	Told float64
	// Negative is the negative prompt, nil where there is none unless one is given.
	Negative *string
	// Sigmas are the levels that a run of as many steps goes out from, before they are
	// shifted; nil for even ones.
	Sigmas []float64
	// mu is the dynamic shift, nil for that of the schedule.
	mu func(tokens, steps int) float64
	// single has even levels be even in float32.
	single bool
	// table has the noise levels go out from those of training.
	table bool
}

// Style is how the pipeline draws with its transformer, of which c is the config: as
// diffusers does. Distilled ones take four steps and no guidance.
func (p *Pipeline) Style(c *model.Config) Style {
	s := familyOf(c.Architecture).style(tells(c.Family))
	if p.Distilled {
		s.Steps, s.Scale, s.Negative = 4, s.Guidance.None(), nil
	}
	if len(p.Sigmas) > 0 {
		s.Steps, s.Sigmas = len(p.Sigmas), p.Sigmas
	}
	return s
}

// Guided reports whether a drawing is led away from a negative prompt, if it has one.
func (s Style) Guided(d Drawing) bool {
	scale := s.Scale
	if d.Scale != nil {
		scale = *d.Scale
	}
	return s.Guidance.Asks(scale)
}

// levels are those of a run for a picture of so many tokens.
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
