package lora

import (
	"math"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// dora is DoRA (Liu et al. 2024, arXiv 2402.09353). It trains magnitude m and direction of a weight
// separately: W' = m·(W + Scale·B·A)/‖W + Scale·B·A‖, with a norm for each output.
type dora struct{ plainLoRA }

// roleMagnitude is m: lora_magnitude_vector [out]; [columns] on an embedding.
const roleMagnitude Role = "magnitude"

// normPrefix begins the names of constants ‖W‖².
const normPrefix = "norm."

func (dora) name() string { return "DoRA" }

func (dora) keys() []field {
	return []field{{"use_dora", func(c *Config) any { return &c.UseDoRA }}}
}

func (dora) selected(c *Config) bool { return c.UseDoRA }

func (d dora) validate(c *Config) error {
	if err := d.plainLoRA.validate(c); err != nil {
		return err
	}
	if c.LoraBias {
		return configError("lora_bias", "it does not go together with use_dora")
	}
	return nil
}

func (d dora) accept(c *Config, m Module) error {
	if m.Kind == Parameter {
		return unsupported("use_dora", "found true, which the adapter of the parameter %q cannot have", m.Name)
	}
	return d.plainLoRA.accept(c, m)
}

func (d dora) parts() []part {
	return append(d.plainLoRA.parts(), part{role: roleMagnitude, end: ".lora_magnitude_vector", set: func(c *Config) { c.UseDoRA = true }})
}

func (d dora) shape(t Target, r Role) []int {
	if r == roleMagnitude {
		return []int{t.Out}
	}
	return d.plainLoRA.shape(t, r)
}

func (dora) needsBase(Target) bool { return true }

func (dora) additive() bool { return false }

// initialize sets the magnitude to the norms of the weight that the module computes with.
func (d dora) initialize(t Target, w Weights, seed uint64, base []float32) error {
	if err := d.plainLoRA.initialize(t, w, seed, base); err != nil {
		return err
	}
	if !t.MutatesBase() { // else the residual and the part taken out of it make up the base again
		base = append([]float32(nil), base...)
		t.addProduct(base, w, t.Scale)
	}
	for i, n := range t.norms(base) {
		w[roleMagnitude][i] = float32(n)
	}
	return nil
}

// constants returns ‖W‖² per output.
func (dora) constants(t Target, weight func() ([]float32, error)) (map[string]*tensor.Tensor, error) {
	w, err := weight()
	if err != nil {
		return nil, err
	}
	sums := make([]float32, t.Out)
	for i, n := range t.norms(w) {
		sums[i] = float32(n * n)
	}
	x, err := float32Tensor(sums, t.Out)
	return map[string]*tensor.Tensor{normPrefix + t.Name: &x}, err
}

// terms returns LoRA's terms with the gain m/‖W + s·BA‖. With dropout it returns none: PEFT then
// multiplies W by x and by the dropped x.
func (d dora) terms(l layer) (terms, bool) {
	x, _ := d.plainLoRA.terms(l)
	x.gain = func() graph.Tensor { return d.gain(l, x.down, x.up) }
	return x, !l.drops()
}

// linear returns W x + bias + (g−1)·W drop(x) + g·s·BA drop(x).
func (d dora) linear(l layer) graph.Tensor {
	down, up, none := l.param(RoleA), l.param(RoleB), graph.Tensor{}
	key, drop := l.dropout()
	g := d.gain(l, down, up)
	x := l.x.Dropout(key, drop)
	y := l.x.Linear(l.w, l.bias).Add(x.Linear(l.w, none).Mul(g.AddScalar(-1)))
	return y.Add(x.Linear(down, none).Linear(up, none).Scale(l.t.Scale).Mul(g))
}

// embedding returns the rows of LoRA times the gain.
func (d dora) embedding(l layer, ids graph.Tensor) graph.Tensor {
	y := d.plainLoRA.embedding(l, ids)
	return y.Mul(d.gain(l, l.param(RoleA), l.param(RoleB)))
}

// gain returns g = m/‖W + s·BA‖ per output.
func (d dora) gain(l layer, down, up graph.Tensor) graph.Tensor {
	return l.param(roleMagnitude).Div(d.norm(l, down, up))
}

// norm returns ‖W + s·BA‖ per output, taken as a constant, without the sum itself:
// ‖W‖² + 2s·Σ (W Aᵀ)∘B + s²·Σ (B (AAᵀ))∘B. It reads all of W, and changes with the
// adapter only: once in a step of the optimizer, however many batches that has.
func (dora) norm(l layer, down, up graph.Tensor) graph.Tensor {
	b, t, w := l.b, l.t, l.w
	one := func(a, c graph.Tensor, ta, tb bool) graph.Tensor {
		return b.G.Gemm([]ir.Product{{A: a.Value(), B: c.Value(), TA: ta, TB: tb, Alpha: 1}}, graph.Tensor{}, graph.Tensor{})
	}
	var both graph.Tensor // W Aᵀ
	if w.Valid() && w.Type().DType.Quantized() {
		both = one(down, w, false, true).Transpose(1, 0) // quantised weights are the second factor alone
	} else {
		both = one(w, down, t.Kind == Embedding, true)
	}
	cross := both.Mul(up).Sum(1).Scale(2 * t.Scale)
	square := one(up, one(down, down, false, true), false, false).Mul(up).Sum(1).Scale(t.Scale * t.Scale)
	base := l.constant(normPrefix + t.Name)
	return b.Precompute("norm."+t.Name+".adapted", base.Add(cross).Add(square).Apply(ir.Sqrt).Detach())
}

func (d dora) merge(t Target, weight []float32, w Weights) {
	d.plainLoRA.merge(t, weight, w)
	m := w[roleMagnitude]
	factor := t.norms(weight)
	for i, n := range factor {
		factor[i] = float64(m[i]) / n
	}
	for i, v := range weight {
		o := i % t.Out
		if t.Kind == Linear {
			o = i / t.In
		}
		weight[i] = float32(float64(v) * factor[o])
	}
}

// norms returns the Euclidean norms of the outputs: rows of [out, in], columns of [in,
// out].
func (t Target) norms(weight []float32) []float64 {
	squares := make([]float64, t.Out)
	for i, v := range weight {
		o := i % t.Out
		if t.Kind == Linear {
			o = i / t.In
		}
		squares[o] += float64(v) * float64(v)
	}
	for i, s := range squares {
		squares[i] = math.Sqrt(s)
	}
	return squares
}
