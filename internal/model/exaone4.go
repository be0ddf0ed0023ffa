package model

import (
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	registerDecoder("exaone4", readExaone4, "Exaone4ForCausalLM", "Exaone4Model", "Exaone4ForSequenceClassification")
}

// exaone4 is EXAONE 4.0 (LG AI Research 2025, arXiv 2507.11407). Norms follow attention and MLP,
// and each head of q and k has a norm. In models with sliding layers, only these have a rotary
// embedding.
type exaone4 struct {
	decoder
	LayerTypes []string // by layer
	Window     int      // of the layers with sliding attention
	Everywhere bool     // all layers have a rotary embedding
}

func readExaone4(c *Config, f *Fields) Family {
	f.defaults(c, defaults{MaxPositions: 2048, BOS: 0, EOS: []int32{2}, Padding: -1})
	m := &exaone4{decoder: f.decoder(c)}
	if !f.given("num_key_value_heads") {
		m.KVHeads = 32
	}
	m.NormEps = float32(f.Float("rms_norm_eps", 1e-5))
	m.RoPE = f.rope(c, m.HeadDim, 10000)
	m.Everywhere = f.Null("sliding_window")
	pattern := 1
	if !m.Everywhere && !f.Has("layer_types") {
		pattern = f.Int("sliding_window_pattern", 4)
	}
	m.LayerTypes = f.layerKinds(max(0, c.Layers), pattern)
	m.Window = f.kindWindow(&m.decoder, m.LayerTypes, 4096)
	return m
}

// Build implements Family.
func (m *exaone4) Build(c *Config, b *nn.Builder) Outputs {
	l := m.language(c, b)
	x := l.embed()
	rope := m.RoPE.table(b, "", l.Positions)
	x = l.layers(x, func(b *nn.Builder, i int, x graph.Tensor) graph.Tensor {
		a := b.Sub("self_attn")
		q, k, v := m.project(a, x, false)
		q, k = m.headNorm(a, "q_norm", q, 0), m.headNorm(a, "k_norm", k, 0)
		window := 0
		if m.LayerTypes[i] == slidingAttention {
			window = m.Window
		}
		if m.Everywhere || window > 0 {
			q, k = q.RoPE(rope, m.HeadDim), k.RoPE(rope, m.HeadDim)
		}
		h := l.attention(a, q, k, v, m.scores(window))
		h = a.Linear("o_proj", h, c.HiddenSize, false)
		x = b.RMSNorm("post_attention_layernorm", h, m.NormEps).Add(x)
		h = m.gatedMLP(b.Sub("mlp"), x, false)
		return b.RMSNorm("post_feedforward_layernorm", h, m.NormEps).Add(x)
	})
	return l.outputs(l.body.RMSNorm("norm", x, m.NormEps))
}
