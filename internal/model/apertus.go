package model

import (
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

func init() {
	registerDecoder("apertus", readApertus, "ApertusForCausalLM", "ApertusModel")
}

// apertus is Apertus (Hernández-Cano et al. 2025, arXiv 2509.14233): an MLP without a gate,
// whose activation function has weights, and a norm on each head of q and k.
type apertus struct {
	decoder
	AttentionBias bool
	XIELU         bool // the activation function has weights of each layer; otherwise it is Activation
}

func readApertus(c *Config, f *Fields) Family {
	f.defaults(c, defaults{MaxPositions: 65536, BOS: 1, EOS: []int32{2}, Padding: 3})
	const act = "hidden_act"
	weighted := f.String(act, "xielu") == "xielu"
	if weighted {
		f.values[act] = []byte(`"silu"`)
	}
	if !f.Has("rope_parameters") {
		f.values["rope_parameters"] = []byte(`{"rope_type": "llama3", "rope_theta": 12000000.0, "factor": 8.0,
			"original_max_position_embeddings": 8192, "low_freq_factor": 1.0, "high_freq_factor": 4.0}`)
	}
	m := &apertus{decoder: f.decoder(c), XIELU: weighted}
	m.NormEps = float32(f.Float("rms_norm_eps", 1e-5))
	m.RoPE = f.rope(c, m.HeadDim, 12000000)
	m.AttentionBias = f.Bool("attention_bias", false)
	return m
}

// Build implements Family.
func (m *apertus) Build(c *Config, b *nn.Builder) Outputs {
	l := m.language(c, b)
	x := l.embed()
	rope := m.RoPE.table(b, "", l.Positions)
	x = l.layers(x, func(b *nn.Builder, _ int, x graph.Tensor) graph.Tensor {
		h := b.RMSNorm("attention_layernorm", x, m.NormEps)
		a, mlp := b.Sub("self_attn"), b.Sub("mlp")
		q, k, v := m.project(a, h, m.AttentionBias)
		q, k = m.headNorm(a, "q_norm", q, 0).RoPE(rope, m.HeadDim), m.headNorm(a, "k_norm", k, 0).RoPE(rope, m.HeadDim)
		x = a.Linear("o_proj", l.attention(a, q, k, v, m.scores(0)), c.HiddenSize, m.AttentionBias).Add(x)
		h = mlp.Linear("up_proj", b.RMSNorm("feedforward_layernorm", x, m.NormEps), m.Intermediate, false)
		switch {
		case !h.Valid():
			return h
		case m.XIELU:
			h = xIELU(mlp.Sub("act_fn"), h)
		default:
			h = h.Activate(m.Activation)
		}
		return mlp.Linear("down_proj", h, c.HiddenSize, false).Add(x)
	})
	return l.outputs(l.body.RMSNorm("norm", x, m.NormEps))
}

// xIELU is αₚx² + βx for positive x, and αₙ(exp(min(x, ε)) − 1 − x) + βx for others (Huang and
// Schlag 2024, arXiv 2411.13010). αₚ is the softplus of a weight, αₙ is β plus that of another.
func xIELU(b *nn.Builder, x graph.Tensor) graph.Tensor {
	softplus := func(name string) graph.Tensor {
		return b.Frozen(b.Name(name), 1).Cast(tensor.F32).Apply(ir.Exp).AddScalar(1).Apply(ir.Log)
	}
	number := func(name string) graph.Tensor { return b.Frozen(b.Name(name)).Cast(tensor.F32) }
	beta, eps := number("beta"), number("eps")
	positive, negative := softplus("alpha_p"), softplus("alpha_n").Add(beta)
	if !negative.Valid() {
		return negative
	}
	up := x.Mul(x).Mul(positive)
	down := x.Min(eps).Apply(ir.Exp).AddScalar(-1).Sub(x).Mul(negative)
	return x.Compare(ir.Greater, b.G.Const(0)).Where(up, down).Add(x.Mul(beta))
}
