package vec

import "math"

// AdamW is the optimizer of Loshchilov and Hutter, "Decoupled weight decay
// regularization" (2019), with the arithmetic of torch.optim.AdamW.
type AdamW struct {
	LR, Beta1, Beta2, Eps, WeightDecay float64
}

// adamConstants holds the scalars of one step, in the order in which the
// assembly reads them.
type adamConstants struct {
	decay        float32 // 1 − lr·weight decay
	beta1c       float32 // 1 − β1
	beta2        float32 // β2
	beta2c       float32 // 1 − β2
	biasRoot     float32 // √(1 − β2^step)
	eps          float32
	negativeStep float32 // −lr/(1 − β1^step)
}

// Step updates the parameters p and the moments m and v in place by the
// gradient g; step counts from 1:
//
//	p *= 1 − lr·wd
//	m += (1−β1)·(g − m)
//	v  = β2·v + (1−β2)·g²
//	p −= lr/(1−β1^step) · m / (√v/√(1−β2^step) + eps)
func (o AdamW) Step(p, m, v, g []float32, step int) {
	n := len(p)
	t := float64(step)
	active.adamW(p, m[:n], v[:n], g[:n], adamConstants{
		decay:        float32(1 - o.LR*o.WeightDecay),
		beta1c:       float32(1 - o.Beta1),
		beta2:        float32(o.Beta2),
		beta2c:       float32(1 - o.Beta2),
		biasRoot:     float32(math.Sqrt(1 - math.Pow(o.Beta2, t))),
		eps:          float32(o.Eps),
		negativeStep: float32(-o.LR / (1 - math.Pow(o.Beta1, t))),
	})
}

func portableAdamW(p, m, v, g []float32, c adamConstants) {
	m, v, g = m[:len(p)], v[:len(p)], g[:len(p)]
	for i := range p {
		gi := g[i]
		mi := m[i] + c.beta1c*(gi-m[i])
		vi := c.beta2*v[i] + c.beta2c*gi*gi
		m[i], v[i] = mi, vi
		root := float32(math.Sqrt(float64(vi)))
		p[i] = p[i]*c.decay + c.negativeStep*(mi/(root/c.biasRoot+c.eps))
	}
}
