package diffusion

import "github.com/lorafuse/lorafuse/internal/diffusion/flow"

func init() { register("ZImageTransformer2DModel", family{style: zImageStyle}) }

func zImageStyle(bool) Style {
	return Style{Steps: 50, Guidance: flow.Beyond, Scale: 5, Negative: new(string), single: true}
}
