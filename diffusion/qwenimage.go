package diffusion

import (
	"github.com/lorafuse/lorafuse/data/picture"
	"github.com/lorafuse/lorafuse/diffusion/flow"
)

func init() {
	register("QwenImageTransformer2DModel", family{qwenStyle, &editPlus})
	register("QwenImage21Transformer2DModel", family{style: qwen21Style})
}

// qwenStyle is that of Qwen-Image and Qwen-Image-Edit.
func qwenStyle(bool) Style {
	blank := " "
	return Style{Steps: 50, Guidance: flow.Rescale, Scale: 4, Told: 1, Negative: &blank}
}

// qwen21Style is that of Qwen-Image 2.1.
func qwen21Style(bool) Style {
	return Style{Steps: 40, Guidance: flow.Extrapolate, Scale: 1}
}

// editing is a class of pipelines whose text encoder is shown the pictures that are edited.
type editing struct {
	shows shows
	fit   *fitting
}

// edits are those classes. Their text encoders see pictures of 1024² and 384² pixels, of
// which 28² are a place; sides that are rounded up take a few more.
var edits = map[string]editing{
	"QwenImageEditPipeline":     {shows{area: 1024 * 1024, most: 1536}, &edit},
	"QwenImageEditPlusPipeline": {shows{area: 384 * 384, numbered: true, most: 1024}, &editPlus},
}

// edit and editPlus are how Qwen-Image-Edit takes pictures, one, and several since -2509
// (diffusers' QwenImageEditPipeline and QwenImageEditPlusPipeline): rounded to an area.
// What it draws has the shape of the last.
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
