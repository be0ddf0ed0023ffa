package model

import (
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	registerDecoder("qwen2", readQwen2, "Qwen2ForCausalLM", "Qwen2Model", "Qwen2ForSequenceClassification")
	registerDecoder("qwen3", readQwen3, "Qwen3ForCausalLM", "Qwen3Model", "Qwen3ForSequenceClassification")
}

// qwen2 is Qwen2 and Qwen2.5 (Yang et al. 2024, arXiv 2407.10671): biases on q, k and v.
type qwen2 struct {
	decoder
	Windows []int // by layer
}

func readQwen2(c *Config, f *Fields) Family {
	m := &qwen2{decoder: f.decoder(c)}
	m.RoPE = f.rope(c, m.HeadDim, 10000)
	m.Windows = f.qwenWindows(c, &m.decoder, 28)
	return m
}

// Build implements Family.
func (m *qwen2) Build(c *Config, b *nn.Builder) Outputs {
	l := m.language(c, b)
	return m.layersAfterEmbeddings(l, l.embed())
}

// layersAfterEmbeddings emits the layers that follow the embeddings x.
func (m *qwen2) layersAfterEmbeddings(l *language, x graph.Tensor) Outputs {
	rope := m.RoPE.table(l.b, "", l.Positions)
	x = l.layers(x, func(b *nn.Builder, i int, x graph.Tensor) graph.Tensor {
		h := b.RMSNorm("input_layernorm", x, m.NormEps)
		a := b.Sub("self_attn")
		q, k, v := m.project(a, h, true)
		q, k = q.RoPE(rope, m.HeadDim), k.RoPE(rope, m.HeadDim)
		h = l.attention(a, q, k, v, m.scores(m.Windows[i]))
		x = a.Linear("o_proj", h, l.config.HiddenSize, false).Add(x)
		h = b.RMSNorm("post_attention_layernorm", x, m.NormEps)
		return m.gatedMLP(b.Sub("mlp"), h, false).Add(x)
	})
	return l.outputs(l.body.RMSNorm("norm", x, m.NormEps))
}

// qwen3 is Qwen3 (Yang et al. 2025, arXiv 2505.09388): a norm on each head of q and k.
type qwen3 struct {
	decoder
	AttentionBias bool
	Windows       []int // by layer
}

func readQwen3(c *Config, f *Fields) Family {
	m := &qwen3{decoder: f.decoder(c)}
	if !f.Has("head_dim") {
		m.HeadDim = 128
	}
	m.RoPE = f.rope(c, m.HeadDim, 10000)
	m.AttentionBias = f.Bool("attention_bias", false)
	m.Windows = f.qwenWindows(c, &m.decoder, 28)
	return m
}

// Build implements Family.
func (m *qwen3) Build(c *Config, b *nn.Builder) Outputs {
	l := m.language(c, b)
	x := l.embed()
	rope := m.RoPE.table(b, "", l.Positions)
	x = l.layers(x, func(b *nn.Builder, i int, x graph.Tensor) graph.Tensor {
		h := b.RMSNorm("input_layernorm", x, m.NormEps)
		a := b.Sub("self_attn")
		q, k, v := m.project(a, h, m.AttentionBias)
		q, k = m.headNorm(a, "q_norm", q, 0), m.headNorm(a, "k_norm", k, 0)
		q, k = q.RoPE(rope, m.HeadDim), k.RoPE(rope, m.HeadDim)
		h = l.attention(a, q, k, v, m.scores(m.Windows[i]))
		x = a.Linear("o_proj", h, c.HiddenSize, m.AttentionBias).Add(x)
		h = b.RMSNorm("post_attention_layernorm", x, m.NormEps)
		return m.gatedMLP(b.Sub("mlp"), h, false).Add(x)
	})
	return l.outputs(l.body.RMSNorm("norm", x, m.NormEps))
}

// qwenWindows reads the sliding window of each layer. layer_types selects the layers with a
// window. Without that key, they are the layers from max_window_layers on; from is its
// default.
func (f *Fields) qwenWindows(c *Config, d *decoder, from int) []int {
	window := f.Int("sliding_window", 4096)
	if !f.Bool("use_sliding_window", false) {
		window = 0
	}
	from = f.Int("max_window_layers", from)
	windows := make([]int, max(0, c.Layers))
	types := f.layerTypes(len(windows))
	for i := range windows {
		slides := i >= from && window > 0
		if types != nil {
			slides = types[i] == slidingAttention
			if slides && window <= 0 {
				f.Fail("layer_types", types[i], "sliding_window and use_sliding_window with it")
			}
		}
		if slides {
			windows[i] = d.window(window)
		}
	}
	return windows
}
