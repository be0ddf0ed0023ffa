package lora

import (
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// loha is LoHa (Hyeon-Woo et al. 2022, arXiv 2108.06098): Δ = (A₁·B₁)∘(A₂·B₂), whose rank may be the square of that
// of its factors.
type loha struct{ lycoris }

func init() { methods = append(methods, loha{}) }

// The roles of LoHa's tensors, with the shapes in the file.
const (
	roleW1A Role = "hada_w1_a" // [out, rank]
	roleW1B Role = "hada_w1_b" // [rank, in]
	roleW2A Role = "hada_w2_a" // [out, rank]
	roleW2B Role = "hada_w2_b" // [rank, in]
)

func (loha) name() string     { return "LoHa" }
func (loha) peftType() string { return "LOHA" }

func (m loha) validate(c *Config) error {
	if i := c.InitLoraWeights; i != InitDefault && i != InitRandom && i != "" {
		return unsupported("init_weights", "found %q, expected true or false", i)
	}
	return m.lycoris.validate(c)
}

func (loha) parts() []part {
	var all []part
	for _, r := range []Role{roleW1A, roleW1B, roleW2A, roleW2B} {
		all = append(all, part{role: r, end: "." + string(r), factor: true})
	}
	return all
}

func (loha) shape(t Target, r Role) []int {
	if r == roleW1A || r == roleW2A {
		return []int{t.Out, t.Rank}
	}
	return []int{t.Rank, t.In}
}

// initialize follows PEFT: all matrices are uniform as those of linear layers, except B₂, which is zero unless
// init_weights is false.
func (m loha) initialize(t Target, w Weights, seed uint64, _ []float32) error {
	for i, p := range m.parts() {
		if p.role != roleW2B || t.Init == InitRandom {
			t.draw(seed, byte(i)).uniform(w[p.role], bound(m.shape(t, p.role)[1]))
		}
	}
	return nil
}

// terms returns Δ as a product of matrices with rank² columns and rows, if these are fewer than those of the weight:
// (A₁·B₁)∘(A₂·B₂) is the sum of (aᵢ∘aⱼ)·(bᵢ∘bⱼ) over the columns aᵢ, aⱼ and the rows bᵢ, bⱼ.
func (m loha) terms(l layer) (terms, bool) {
	r, in, out := l.t.Rank, l.t.In, l.t.Out
	if r*r > min(in, out) || m.trainable(l) != nil {
		return terms{}, false
	}
	one, rank := ir.Static(1), ir.Static(r)
	up := l.param(roleW1A).Reshape(ir.Static(out), rank, one).Mul(l.param(roleW2A).Reshape(ir.Static(out), one, rank))
	down := l.param(roleW1B).Reshape(rank, one, ir.Static(in)).Mul(l.param(roleW2B).Reshape(one, rank, ir.Static(in)))
	return terms{down: down.Reshape(ir.Static(r*r), ir.Static(in)), up: up.Reshape(ir.Static(out), ir.Static(r*r)), scale: l.t.Scale}, true
}

func (m loha) linear(l layer) graph.Tensor {
	left, right := l.param(roleW1A).MatMul(l.param(roleW1B)), l.param(roleW2A).MatMul(l.param(roleW2B))
	return m.sum(l, left.Mul(right))
}

func (loha) merge(t Target, weight []float32, w Weights) {
	right1, right2 := widen(w[roleW1B]), widen(w[roleW2B])
	left1, left2 := widen(w[roleW1A]), widen(w[roleW2A])
	eachRange(t.Out, func(from, to int) {
		first, second := make([]float64, t.In), make([]float64, t.In)
		for o := from; o < to; o++ {
			clear(first)
			clear(second)
			addRow(first, left1[o*t.Rank:(o+1)*t.Rank], right1)
			addRow(second, left2[o*t.Rank:(o+1)*t.Rank], right2)
			row := weight[o*t.In : (o+1)*t.In]
			for i := range row {
				row[i] = float32(float64(row[i]) + float64(t.Scale*first[i]*second[i]))
			}
		}
	})
}
