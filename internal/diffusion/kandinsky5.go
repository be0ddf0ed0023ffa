package diffusion

import "github.com/lorafuse/lorafuse/internal/diffusion/flow"

func init() { register("Kandinsky5Transformer3DModel", family{style: kandinskyStyle}) }

func kandinskyStyle(bool) Style {
	return Style{Steps: 50, Guidance: flow.Extrapolate, Scale: 3.5, Negative: new(string), table: true}
}
