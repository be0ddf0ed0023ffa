package diffusion

import (
	"github.com/lorafuse/lorafuse/internal/data/picture"
	"github.com/lorafuse/lorafuse/internal/diffusion/flow"
)

func init() {
	register("QwenImageTransformer2DModel", family{qwenStyle, &editPlus})
	register("QwenImage21Transformer2DModel", family{style: qwen21Style})
}

// qwenStyle returns the inference defaults of Qwen-Image and Qwen-Image-Edit.
func qwenStyle(bool) Style {
	blank := " "
	return Style{Steps: 50, Guidance: flow.Rescale, Scale: 4, Told: 1, Negative: &blank}
}

// qwen21Style returns the inference defaults of Qwen-Image 2.1.
func qwen21Style(bool) Style {
	return Style{Steps: 40, Guidance: flow.Extrapolate, Scale: 1}
}

// editing configures a pipeline whose text encoder reads the images that are edited.
type editing struct {
	shows shows
	fit   *fitting
}

// edits maps pipeline classes to their configuration. The text encoders read images of 1024²
// or 384² pixels with one token per 28² pixels; rounding sides up adds a few tokens.
var edits = map[string]editing{
	"QwenImageEditPipeline":     {shows{area: 1024 * 1024, most: 1536}, &edit},
	"QwenImageEditPlusPipeline": {shows{area: 384 * 384, numbered: true, most: 1024}, &editPlus},
}

// edit and editPlus resize control images for Qwen-Image-Edit (diffusers'
// QwenImageEditPipeline and QwenImageEditPlusPipeline): edit takes one, editPlus, since
// -2509, several. They are rounded to an area. The result has the aspect ratio of the last
// image.
var (
	edit     = fitting{most: 1, scale: rounded, result: likeLast}
	editPlus = fitting{scale: rounded, result: likeLast}
)

func rounded(s picture.Size, side, multiple int) (picture.Size, error) {
	return around(side*side, s, max(editMultiple, multiple)), nil
}

func likeLast(shown, _ []picture.Size, side, multiple int) picture.Size {
	s, _ := rounded(shown[len(shown)-1], side, multiple)
	return s
}
