package diffusion

import "github.com/lorafuse/lorafuse/internal/diffusion/flow"

func init() {
	register(family{
		class:     "QwenImage21Transformer2DModel",
		style:     Style{Steps: 40, Guidance: flow.Extrapolate, Scale: 1},
		pipelines: []variant{{class: "QwenImage21Pipeline", unread: "its text encoder, Qwen3-VL, is not supported"}},
	})
}
