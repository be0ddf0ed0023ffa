package lora

import (
	"slices"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// toy is a method like VeRA (Kopiczko et al. 2023, arXiv 2310.11454), which only tests have:
// W' = W + diag(b)·B·diag(d)·A with trained vectors b [out] and d [r] of each target, and random A and
// B that all targets share: their first columns and rows. It has a peft_type and keys of its own.
// This file is all of it.
type toy struct{ baseMethod }

func init() { methods = append(methods, toy{}) }

// toySettings are the method's own keys.
type toySettings struct {
	seed    int
	initial float64
	whole   bool // computes layers without terms
}

func (s *toySettings) clone() settings { c := *s; return &c }

const (
	roleD Role = "d"
	roleV Role = "b"
)

func (toy) name() string       { return "Toy" }
func (toy) peftType() string   { return "TOY" }
func (toy) settings() settings { return &toySettings{initial: 0.5} }

func (toy) keys() []field {
	return []field{
		{"d_initial", func(c *Config) any { return &c.own.(*toySettings).initial }},
		{"projection_seed", func(c *Config) any { return &c.own.(*toySettings).seed }},
		{"whole", func(c *Config) any { return &c.own.(*toySettings).whole }},
		{"r", func(c *Config) any { return &c.R }},
	}
}

func (toy) parts() []part {
	return []part{{role: roleD, end: ".toy_d", factor: true}, {role: roleV, end: ".toy_b", factor: true}}
}

func (toy) shape(t Target, r Role) []int {
	if r == roleD {
		return []int{t.Rank}
	}
	return []int{t.Out}
}

func (toy) initialize(t Target, w Weights, _ uint64, _ []float32) error {
	copy(w[roleD], slices.Repeat([]float32{float32(t.own.(*toySettings).initial)}, t.Rank))
	return nil
}

func (toy) shared(p *Placement) []sharedTensor {
	in, out := 0, 0
	for _, t := range p.Targets {
		in, out = max(in, t.In), max(out, t.Out)
	}
	tensor := func(name string, number byte, shape ...int) sharedTensor {
		return sharedTensor{TensorSpec{Key: "base_model." + name, Module: name, Param: "weight", Role: RoleBase, Shape: shape}, func(uint64) []float32 {
			x := make([]float32, elements(shape))
			Target{Module: Module{Name: name}}.draw(uint64(p.config.own.(*toySettings).seed), number).normal(x, 0.3)
			return x
		}}
	}
	r := p.Targets[0].Rank
	return []sharedTensor{tensor("toy_A", 0, r, in), tensor("toy_B", 1, out, r)}
}

func (toy) terms(l layer) (terms, bool) {
	column := func(r Role, n int) graph.Tensor { return l.param(r).Reshape(ir.Static(n), ir.Static(1)) }
	down := l.constant("base.toy_A.weight").Slice(1, 0, l.t.In).Mul(column(roleD, l.t.Rank))
	up := l.constant("base.toy_B.weight").Slice(0, 0, l.t.Out).Mul(column(roleV, l.t.Out))
	return terms{down: down, up: up, scale: l.t.Scale}, !l.t.own.(*toySettings).whole
}

func (m toy) linear(l layer) graph.Tensor {
	x, _ := m.terms(l)
	none := graph.Tensor{}
	return l.x.Linear(l.w, l.bias).Add(l.x.Linear(x.down, none).Linear(x.up, none))
}

func (m toy) merge(t Target, weight []float32, w Weights) {
	a, b := w["toy_A"], w["toy_B"]
	columns := len(a) / t.Rank
	for o, v := range w[roleV] {
		for k, d := range w[roleD] {
			for i := range t.In {
				weight[o*t.In+i] += v * b[o*t.Rank+k] * d * a[k*columns+i]
			}
		}
	}
}
