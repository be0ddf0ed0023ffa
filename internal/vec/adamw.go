package vec

import "math"

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

// AdamWRates updates the parameters p and the moments m and v in place by the gradient g, with the arithmetic of
// torch.optim.AdamW and precomputed scalars of step t: decay = 1 − lr·weight decay, step = lr/(1 − β1ᵗ) and
// root = √(1 − β2ᵗ):
//
//	p *= decay
//	m += (1−β1)·(g − m)
//	v  = β2·v + (1−β2)·g²
//	p −= step · m / (√v/root + eps)
func AdamWRates(p, m, v, g []float32, beta1, beta2, eps float64, decay, step, root float32) {
	n := len(p)
	active.adamW(p, m[:n], v[:n], g[:n], adamConstants{
		decay:        decay,
		beta1c:       float32(1 - beta1),
		beta2:        float32(beta2),
		beta2c:       float32(1 - beta2),
		biasRoot:     root,
		eps:          float32(eps),
		negativeStep: -step,
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
