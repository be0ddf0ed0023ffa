package model

import (
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	registerDecoder("llama", readLlama, "LlamaForCausalLM", "LlamaModel", "LlamaForSequenceClassification")
}

// llama is Llama 2 and 3 (Touvron et al. 2023, arXiv 2307.09288).
type llama struct {
	decoder
	AttentionBias, MLPBias bool
}

func readLlama(c *Config, f *Fields) Family {
	m := &llama{decoder: f.decoder(c)}
	m.RoPE = f.rope(c, m.HeadDim, 10000)
	m.AttentionBias = f.Bool("attention_bias", false)
	m.MLPBias = f.Bool("mlp_bias", false)
	if tp := f.Int("pretraining_tp", 1); tp > 1 {
		f.Unsupported("pretraining_tp", tp, []string{"1"})
	}
	return m
}

// Build implements Family.
func (m *llama) Build(c *Config, b *nn.Builder) Outputs {
	l := m.language(c, b)
	x := l.embed()
	rope := m.RoPE.table(b, "", l.Positions)
	x = l.layers(x, func(b *nn.Builder, _ int, x graph.Tensor) graph.Tensor {
		h := b.RMSNorm("input_layernorm", x, m.NormEps)
		a := b.Sub("self_attn")
		q, k, v := m.project(a, h, m.AttentionBias)
		q, k = q.RoPE(rope, m.HeadDim), k.RoPE(rope, m.HeadDim)
		h = l.attention(a, q, k, v, m.scores(0))
		x = a.Linear("o_proj", h, c.HiddenSize, m.AttentionBias).Add(x)
		h = b.RMSNorm("post_attention_layernorm", x, m.NormEps)
		return m.gatedMLP(b.Sub("mlp"), h, m.MLPBias).Add(x)
	})
	return l.outputs(l.body.RMSNorm("norm", x, m.NormEps))
}
