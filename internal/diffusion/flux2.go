package diffusion

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/internal/data/picture"
	"github.com/lorafuse/lorafuse/internal/diffusion/flow"
)

func init() { register("Flux2Transformer2DModel", family{flux2Style, &references}) }

// flux2Style returns the inference defaults of FLUX.2 dev, which takes a guidance embedding,
// or of klein.
func flux2Style(told bool) Style {
	s := Style{Steps: 50, Guidance: flow.Extrapolate, Scale: 4, Told: 4, mu: flow.Flux2Mu}
	if !told {
		s.Negative = new(string)
	}
	return s
}

// Limits of control images in FLUX.2, as in diffusers.
const (
	referenceSide  = 64 // minimum side in pixels
	referenceShape = 8  // maximum aspect ratio
)

// references resizes control images for FLUX.2 (diffusers' Flux2Pipeline): images with too
// many pixels are reduced, then cropped to whole positions. The result has the size of the
// first image.
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
