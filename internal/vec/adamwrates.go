package vec

// AdamWRates updates p, m and v by the gradient g, with precomputed scalars of
// the step: decay = 1 − lr·weight decay, step = lr/(1 − β1ᵗ) and root = √(1 −
// β2ᵗ).
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
