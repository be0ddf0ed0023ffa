package diffusion

import (
	"github.com/lorafuse/lorafuse/internal/data/picture"
	"github.com/lorafuse/lorafuse/internal/diffusion/flow"
)

func init() {
	blank := " "
	register(family{
		class: "QwenImageTransformer2DModel",
		style: Style{Steps: 50, Guidance: flow.Rescale, Scale: 4, Told: 1, Negative: &blank},
		fit:   &editPlus,
		pipelines: []variant{
			{class: "QwenImagePipeline", captions: &qwenCaptions},
			{class: "QwenImageEditPipeline", controls: true, fit: &edit, captions: editCaptions("qwen-image-edit", shows{area: 1024 * 1024, most: 1536})},
			{class: "QwenImageEditPlusPipeline", controls: true, fit: &editPlus, captions: editCaptions("qwen-image-edit-plus", shows{area: 384 * 384, numbered: true, most: 1024})},
		},
	})
}

// qwenCaptions are the states of a prompt in a template.
var qwenCaptions = captions{
	name:     "qwen-image",
	template: "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial relationships of the objects and background:<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n",
	drop:     34,
	main:     reading{encoder: TextEncoder, tokenizer: Tokenizer, longest: 34 + qwenLength, layers: lastState},
}

// qwenLength is the maximum length of a prompt without its template.
const qwenLength = 1024

// editCaptions returns captions whose text encoder also reads the images that are edited. An
// image has one token per 28² pixels, and a few more because its sides are rounded up.
func editCaptions(name string, s shows) *captions {
	s.token, s.before, s.after = "<|image_pad|>", "<|vision_start|>", "<|vision_end|>"
	return &captions{
		name:     name,
		template: "<|im_start|>system\nDescribe the key features of the input image (color, shape, size, texture, objects, background), then explain how the user's text instruction should alter or modify the image. Generate a new image that meets the user's requirements while maintaining consistency with the original input where appropriate.<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n",
		drop:     64,
		shows:    &s,
		main:     reading{encoder: TextEncoder, tokenizer: Tokenizer, longest: 64 + qwenLength + s.most, layers: lastState},
	}
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
