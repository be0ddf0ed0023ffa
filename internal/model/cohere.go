package model

import (
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	registerDecoder("cohere", readCohere, "CohereForCausalLM", "CohereModel")
	registerDecoder("cohere2", readCohere2, "Cohere2ForCausalLM", "Cohere2Model")
}

// cohere is Command R and Aya (Cohere 2024, arXiv 2405.15032), and Command R7B and A (arXiv
// 2504.00698). Attention and MLP read the same norm, a LayerNorm without bias, and pairs of
// neighbours are rotated. In Command R7B and A some layers have sliding attention, and only
// these have a rotary embedding.
type cohere struct {
	decoder
	AttentionBias bool
	HeadNorms     bool // of q and k, with weights for each head
	LogitScale    float64
	LayerTypes    []string `json:",omitempty"` // by layer; nil: full attention with a rotary embedding
	Window        int      `json:",omitempty"` // of the layers with sliding attention
}

func readCohere(c *Config, f *Fields) Family {
	m := f.cohere(c, 500000)
	m.HeadNorms = f.Bool("use_qk_norm", false)
	return m
}

func readCohere2(c *Config, f *Fields) Family {
	m := f.cohere(c, 10000)
	m.LayerTypes = f.layerKinds(max(0, c.Layers), f.Int("sliding_window_pattern", 4))
	m.Window = f.kindWindow(&m.decoder, m.LayerTypes, 4096)
	return m
}

// cohere reads the keys that both versions share.
func (f *Fields) cohere(c *Config, theta float64) *cohere {
	f.defaults(c, defaults{MaxPositions: 8192, Tied: true, BOS: 5, EOS: []int32{255001}, Padding: 0})
	m := &cohere{decoder: f.decoder(c)}
	m.NormEps = float32(f.Float("layer_norm_eps", 1e-5))
	m.RoPE = f.rope(c, m.HeadDim, theta)
	m.RoPE.Interleaved = true
	m.AttentionBias = f.Bool("attention_bias", false)
	if m.LogitScale = f.Float("logit_scale", 0.0625); m.LogitScale == 0 {
		f.Fail("logit_scale", m.LogitScale, "a number other than 0")
	}
	return m
}

// Build implements Family.
func (m *cohere) Build(c *Config, b *nn.Builder) Outputs {
	l := m.language(c, b)
	l.logitScale = m.logitScale(m.LogitScale)
	x := l.embed()
	rope := m.RoPE.table(b, "", l.Positions)
	x = l.layers(x, func(b *nn.Builder, i int, x graph.Tensor) graph.Tensor {
		rotary, window := true, 0
		if m.LayerTypes != nil {
			if rotary = m.LayerTypes[i] == slidingAttention; rotary {
				window = m.Window
			}
		}
		h := b.LayerNormScaled("input_layernorm", x, m.NormEps)
		a := b.Sub("self_attn")
		q, k, v := m.project(a, h, m.AttentionBias)
		if m.HeadNorms {
			q, k = a.HeadNormScaled("q_norm", q, m.HeadDim, m.NormEps), a.HeadNormScaled("k_norm", k, m.HeadDim, m.NormEps)
		}
		if rotary {
			q, k = m.RoPE.rotate(q, rope, m.HeadDim), m.RoPE.rotate(k, rope, m.HeadDim)
		}
		attended := a.Linear("o_proj", l.attention(a, q, k, v, m.scores(window)), c.HiddenSize, m.AttentionBias)
		return x.Add(attended).Add(m.gatedMLP(b.Sub("mlp"), h, false))
	})
	return l.outputs(l.body.LayerNormScaled("norm", x, m.NormEps))
}
