package diffusion

import (
	"math"

	"github.com/lorafuse/lorafuse/internal/data/picture"
)

func init() {
	register(family{
		class: "FluxTransformer2DModel", style: usual,
		unguided: func(s *Style) { s.Steps = 4 }, // schnell
		fit:      &kontext,
		pipelines: []variant{
			{class: "FluxPipeline", captions: &fluxCaptions},
			{class: "FluxKontextPipeline", captions: &fluxCaptions, controls: true},
		},
	})
}

// fluxCaptions are the T5 states of a prompt, of its padding too, and CLIP's pooled embedding.
var fluxCaptions = captions{
	name:     "flux",
	main:     reading{encoder: TextEncoder2, tokenizer: Tokenizer2, longest: 512, layers: lastState, pad: true},
	unguided: 256, // schnell
	second:   &reading{encoder: TextEncoder, tokenizer: Tokenizer, longest: clipLength},
}

// kontext resizes control images for FLUX.1 Kontext (diffusers' FluxKontextPipeline): to the
// training size with the nearest aspect ratio. The result is square.
var kontext = fitting{
	most: 1,
	scale: func(s picture.Size, side, multiple int) (picture.Size, error) {
		ratio := float64(s.Width/multiple) / float64(max(1, s.Height/multiple)) // of whole positions
		best, distance := picture.Size{}, math.Inf(1)
		for _, x := range kontextSizes {
			if d := math.Abs(ratio - float64(x.Width)/float64(x.Height)); d < distance {
				best, distance = x, d
			}
		}
		return whole(picture.Size{Width: best.Width * side / defaultSide, Height: best.Height * side / defaultSide}, multiple), nil
	},
	result: func(_, _ []picture.Size, side, multiple int) picture.Size {
		return whole(picture.Size{Width: side, Height: side}, multiple)
	},
}

// kontextSizes lists the training sizes of Kontext.
var kontextSizes = []picture.Size{
	{Width: 672, Height: 1568}, {Width: 688, Height: 1504}, {Width: 720, Height: 1456}, {Width: 752, Height: 1392},
	{Width: 800, Height: 1328}, {Width: 832, Height: 1248}, {Width: 880, Height: 1184}, {Width: 944, Height: 1104},
	{Width: 1024, Height: 1024}, {Width: 1104, Height: 944}, {Width: 1184, Height: 880}, {Width: 1248, Height: 832},
	{Width: 1328, Height: 800}, {Width: 1392, Height: 752}, {Width: 1456, Height: 720}, {Width: 1504, Height: 688},
	{Width: 1568, Height: 672},
}
