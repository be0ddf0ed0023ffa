package model

import (
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	registerDecoder("glm", readGLM(false), "GlmForCausalLM", "GlmModel", "GlmForSequenceClassification")
	registerDecoder("glm4", readGLM(true), "Glm4ForCausalLM", "Glm4Model", "Glm4ForSequenceClassification")
}

// glm is GLM-4 (Team GLM 2024, arXiv 2406.12793) and, with norms before and after attention and
// MLP, GLM-4-0414. The first half of each head is rotated, in pairs of neighbours, and gate and
// up are one linear layer.
type glm struct {
	decoder
	AttentionBias bool // of q, k and v
	Sandwich      bool // norms also follow attention and MLP
}

// readGLM returns the function that reads the keys of one of the two versions.
func readGLM(sandwich bool) func(*Config, *Fields) Family {
	return func(c *Config, f *Fields) Family {
		f.defaults(c, defaults{MaxPositions: 131072, BOS: -1, Padding: 151329})
		if !f.Has("eos_token_id") {
			c.EOS = []int32{151329, 151336, 151338}
		}
		m := &glm{decoder: f.decoder(c), Sandwich: sandwich}
		if !f.given("num_key_value_heads") {
			m.KVHeads = 2
		}
		if !f.given("head_dim") {
			m.HeadDim = 128
		}
		m.NormEps = float32(f.Float("rms_norm_eps", 1.5625e-7))
		m.RoPE = f.partialRoPE(c, m.HeadDim, 10000, 0.5)
		m.RoPE.Interleaved = true
		m.AttentionBias = f.Bool("attention_bias", true)
		return m
	}
}

// Build implements Family.
func (m *glm) Build(c *Config, b *nn.Builder) Outputs {
	l := m.language(c, b)
	x := l.embed()
	rope := m.RoPE.table(b, "", l.Positions)
	x = l.layers(x, func(b *nn.Builder, _ int, x graph.Tensor) graph.Tensor {
		after := func(name string, h graph.Tensor) graph.Tensor {
			if m.Sandwich {
				return b.RMSNorm(name, h, m.NormEps)
			}
			return h
		}
		h := b.RMSNorm("input_layernorm", x, m.NormEps)
		a := b.Sub("self_attn")
		q, k, v := m.project(a, h, m.AttentionBias)
		q, k = m.RoPE.rotate(q, rope, m.HeadDim), m.RoPE.rotate(k, rope, m.HeadDim)
		h = l.attention(a, q, k, v, m.scores(0))
		x = after("post_self_attn_layernorm", a.Linear("o_proj", h, c.HiddenSize, false)).Add(x)
		h = b.RMSNorm("post_attention_layernorm", x, m.NormEps)
		h = m.fusedMLP(b.Sub("mlp"), h, "gate_up_proj", "down_proj")
		return after("post_mlp_layernorm", h).Add(x)
	})
	return l.outputs(l.body.RMSNorm("norm", x, m.NormEps))
}
