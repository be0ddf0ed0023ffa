package diffusion

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/data/picture"
	"github.com/lorafuse/lorafuse/diffusion/flow"
)

func init() { register("Flux2Transformer2DModel", family{flux2Style, &references}) }

// flux2Style is that of FLUX.2 dev, which is told its guidance, and of klein.
func flux2Style(told bool) Style {
	s := Style{Steps: 50, Guidance: flow.Extrapolate, Scale: 4, Told: 4, mu: flow.Flux2Mu}
	if !told {
		s.Negative = new(string)
	}
	return s
}

// Shapes of pictures that FLUX.2 takes, as diffusers has it.
const (
	referenceSide  = 64 // pixels at least
	referenceShape = 8  // times as long as wide at most
)

// references is how FLUX.2 takes pictures (diffusers' Flux2Pipeline): as they are, made
// smaller where they have too many pixels, their edges cut off to whole places. What it
// draws has the size of the first.
var references = fitting{
	scale: func(s picture.Size, side, _ int) (picture.Size, error) {
		switch {
		case min(s.Width, s.Height) < referenceSide:
			return s, fmt.Errorf("found %v pixels, expected sides of %d at least", s, referenceSide)
		case max(s.Width, s.Height) > referenceShape*min(s.Width, s.Height):
			return s, fmt.Errorf("found %v pixels, expected one side to be %d times the other at most", s, referenceShape)
		case s.Width*s.Height <= side*side:
			return s, nil
		}
		by := math.Sqrt(float64(side*side) / float64(s.Width*s.Height))
		return picture.Size{Width: int(float64(s.Width) * by), Height: int(float64(s.Height) * by)}, nil
	},
	cut: whole,
	result: func(_, fitted []picture.Size, _, _ int) picture.Size {
		return fitted[0]
	},
}
