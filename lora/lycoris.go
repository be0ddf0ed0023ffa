package lora

import (
	"math"

	"github.com/lorafuse/lorafuse/graph"
)

// lycoris is the common part of LoHa and LoKr, methods of LyCORIS (Yeh et al. 2024, arXiv 2309.14859). They adapt
// linear layers: W' = W + Scale·Δ, and compute Δ from small matrices.
type lycoris struct{ baseMethod }

// lycorisSettings are the keys that only these methods have.
type lycorisSettings struct {
	rankDropout, moduleDropout float64
	effectiveConv              bool // for convolutions, which are not adapted here
	dropoutScale               bool
	decomposeBoth              bool
	decomposeFactor            int
}

func (s *lycorisSettings) clone() settings { c := *s; return &c }

func lycorisOf(own settings) *lycorisSettings {
	if s, ok := own.(*lycorisSettings); ok {
		return s
	}
	return &lycorisSettings{decomposeFactor: -1}
}

func (lycoris) settings() settings { return &lycorisSettings{decomposeFactor: -1} }

// keys returns the keys that LoHaConfig and LoKrConfig of PEFT 0.21.2 share.
func (lycoris) keys() []field {
	own := func(c *Config) *lycorisSettings { return c.own.(*lycorisSettings) }
	return []field{
		{"alpha", func(c *Config) any { return (*alpha)(&c.LoraAlpha) }},
		{"alpha_pattern", func(c *Config) any { return &c.AlphaPattern }},
		{"init_weights", func(c *Config) any { return &c.InitLoraWeights }},
		{"module_dropout", func(c *Config) any { return &own(c).moduleDropout }},
		{"r", func(c *Config) any { return &c.R }},
		{"rank_dropout", func(c *Config) any { return &own(c).rankDropout }},
		{"rank_pattern", func(c *Config) any { return &c.RankPattern }},
		{"use_effective_conv2d", func(c *Config) any { return &own(c).effectiveConv }},
	}
}

func (lycoris) validate(c *Config) error {
	for _, x := range []struct {
		key string
		p   float64
	}{{"rank_dropout", lycorisOf(c.own).rankDropout}, {"module_dropout", lycorisOf(c.own).moduleDropout}} {
		if !(x.p >= 0 && x.p <= 1) {
			return configError(x.key, "a probability lies in [0, 1], found %v", x.p)
		}
	}
	return nil
}

func (lycoris) scale(_ *Config, t Target) float64 { return scale(t.Alpha, t.Rank, false) }

// trainable returns an error if the layer is trained with dropouts that are not computed.
func (lycoris) trainable(l layer) error {
	s := lycorisOf(l.t.own)
	if !l.b.Training() || s.rankDropout == 0 && s.moduleDropout == 0 {
		return nil
	}
	return unsupported("rank_dropout, module_dropout", "found %v and %v, expected 0 in training", s.rankDropout, s.moduleDropout)
}

// sum returns the output of a layer with the change delta [out, in] of its weight, without Scale.
func (m lycoris) sum(l layer, delta graph.Tensor) graph.Tensor {
	if err := m.trainable(l); err != nil {
		return l.b.G.Fail(err)
	}
	return l.x.Linear(l.w, l.bias).Add(l.x.Linear(delta, graph.Tensor{}).Scale(l.t.Scale))
}

// bound returns the bound of torch's kaiming_uniform with a = √5 for a matrix with that many columns.
func bound(columns int) float64 { return 1 / math.Sqrt(float64(columns)) }

// LoHa returns the default configuration of LoHa.
func LoHa() *Config { return newConfig(loha{}.peftType()) }

// LoKr returns the default configuration of LoKr with a factor of the sizes of layers, or -1 for the divisors next to
// their roots. If both is true, the left factor is decomposed too.
func LoKr(both bool, factor int) *Config {
	c := newConfig(lokr{}.peftType())
	c.own = &lycorisSettings{decomposeBoth: both, decomposeFactor: factor}
	return c
}
