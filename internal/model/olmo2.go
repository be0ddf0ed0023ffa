package model

import (
	"slices"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	registerDecoder("olmo2", readOlmo2, "Olmo2ForCausalLM", "Olmo2Model", "Olmo2ForSequenceClassification")
}

// olmo2 is OLMo 2 (OLMo Team 2024, arXiv 2501.00656). Norms follow attention and MLP, and
// queries and keys are normalized over all their heads at once.
type olmo2 struct {
	decoder
	AttentionBias bool
}

func readOlmo2(c *Config, f *Fields) Family {
	m := &olmo2{decoder: f.decoder(c)}
	if !f.Has("rms_norm_eps") {
		m.NormEps = 1e-5
	}
	if _, given := f.values["pad_token_id"]; !given {
		c.Padding = 1
	}
	if _, given := f.values["eos_token_id"]; !given {
		c.EOS = []int32{50279}
	}
	m.RoPE = f.rope(c, m.HeadDim, 10000)
	m.AttentionBias = f.Bool("attention_bias", false)
	// Keys of OLMo 1 and OLMo 3, which change the formula.
	if f.Has("clip_qkv") {
		f.Unsupported("clip_qkv", f.Float("clip_qkv", 0), []string{"null"})
	}
	if slices.Contains(f.layerTypes(max(0, c.Layers)), slidingAttention) {
		f.Unsupported("layer_types", slidingAttention, []string{fullAttention})
	}
	return m
}

// Build implements Family.
func (m *olmo2) Build(c *Config, b *nn.Builder) Outputs {
	l := m.language(c, b)
	x := l.embed()
	rope := m.RoPE.table(b, "", l.Positions)
	x = l.layers(x, func(b *nn.Builder, _ int, x graph.Tensor) graph.Tensor {
		a := b.Sub("self_attn")
		q, k, v := m.project(a, x, m.AttentionBias)
		q, k = a.RMSNorm("q_norm", q, m.NormEps), a.RMSNorm("k_norm", k, m.NormEps)
		q, k = q.RoPE(rope, m.HeadDim), k.RoPE(rope, m.HeadDim)
		h := l.attention(a, q, k, v, m.scores(0))
		h = a.Linear("o_proj", h, c.HiddenSize, m.AttentionBias)
		x = b.RMSNorm("post_attention_layernorm", h, m.NormEps).Add(x)
		h = m.gatedMLP(b.Sub("mlp"), x, false)
		return b.RMSNorm("post_feedforward_layernorm", h, m.NormEps).Add(x)
	})
	return l.outputs(l.body.RMSNorm("norm", x, m.NormEps))
}
