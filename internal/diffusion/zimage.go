package diffusion

import "github.com/lorafuse/lorafuse/internal/diffusion/flow"

func init() {
	register(family{
		class:     "ZImageTransformer2DModel",
		style:     Style{Steps: 50, Guidance: flow.Beyond, Scale: 5, Negative: new(string), single: true},
		pipelines: []variant{{class: "ZImagePipeline", captions: &zImageCaptions}},
	})
}

// zImageCaptions are the hidden states before the last layer.
var zImageCaptions = captions{
	name: "z-image",
	main: reading{encoder: TextEncoder, tokenizer: Tokenizer, longest: 512, layers: []int{-2}, chat: true, thinking: true},
}
