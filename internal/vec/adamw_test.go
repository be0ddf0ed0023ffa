package vec

import "math"

// adamW has the settings of torch.optim.AdamW.
type adamW struct {
	LR, Beta1, Beta2, Eps, WeightDecay float64
}

// Step takes a step; steps count from 1.
func (o adamW) Step(p, m, v, g []float32, step int) {
	t := float64(step)
	AdamWRates(p, m, v, g, o.Beta1, o.Beta2, o.Eps, float32(1-o.LR*o.WeightDecay), float32(o.LR/(1-math.Pow(o.Beta1, t))), float32(math.Sqrt(1-math.Pow(o.Beta2, t))))
}
