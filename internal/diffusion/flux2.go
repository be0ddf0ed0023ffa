package diffusion

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/internal/data/picture"
	"github.com/lorafuse/lorafuse/internal/diffusion/flow"
)

func init() {
	register(family{
		class:    "Flux2Transformer2DModel",
		style:    Style{Steps: 50, Guidance: flow.Extrapolate, Scale: 4, Told: 4, mu: flux2Mu},
		unguided: func(s *Style) { s.Negative = new(string) }, // klein
		fit:      &references,
		pipelines: []variant{
			{class: "Flux2KleinPipeline", captions: &kleinCaptions, controls: true},
			{class: "Flux2Pipeline", unread: "its text encoder, Mistral3, is not supported", controls: true},
		},
	})
}

// kleinCaptions are hidden states of three layers. Padding attends to the prompt, but not to
// itself.
var kleinCaptions = captions{
	name: "flux2-klein",
	main: reading{encoder: TextEncoder, tokenizer: Tokenizer, longest: 512, layers: []int{9, 18, 27}, chat: true, pad: true, masked: true},
}

// flux2Mu returns the dynamic shift, which also depends on the number of steps.
func flux2Mu(tokens, steps int) float64 {
	n := float64(tokens)
	m200 := 0.00016927*n + 0.45666666
	if tokens > 4300 {
		return m200
	}
	m10 := 8.73809524e-05*n + 1.89833333
	a := (m200 - m10) / 190
	return a*float64(steps) + (m200 - 200*a)
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
