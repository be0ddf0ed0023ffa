package model

import (
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	registerDecoder("mistral", readMistral, "MistralForCausalLM", "MistralModel", "MistralForSequenceClassification")
	registerWrapper("mistral3", readMistral3, "Mistral3ForConditionalGeneration", "Mistral3Model")
}

// readMistral3 reads Mistral Small 3.1 and later ones, and Ministral 3: Mistral or Ministral3
// with a vision tower.
func readMistral3(c *Config, f *Fields) Family {
	m := f.wrapped(c, "mistral")
	f.tie(c, true)
	return m
}

// mistral is Mistral 7B (Jiang et al. 2023, arXiv 2310.06825): a Llama without biases whose
// queries see a window of keys.
type mistral struct {
	decoder
	Window int
}

func readMistral(c *Config, f *Fields) Family {
	m := &mistral{decoder: f.decoder(c)}
	m.RoPE = f.rope(c, m.HeadDim, 10000)
	window := 4096
	if f.Null("sliding_window") {
		window = 0
	}
	m.Window = f.slidingWindow(&m.decoder, window)
	return m
}

// Build implements Family.
func (m *mistral) Build(c *Config, b *nn.Builder) Outputs {
	l := m.language(c, b)
	x := l.embed()
	rope := m.RoPE.table(b, "", l.Positions)
	x = l.layers(x, func(b *nn.Builder, _ int, x graph.Tensor) graph.Tensor {
		h := b.RMSNorm("input_layernorm", x, m.NormEps)
		a := b.Sub("self_attn")
		q, k, v := m.project(a, h, false)
		q, k = q.RoPE(rope, m.HeadDim), k.RoPE(rope, m.HeadDim)
		h = l.attention(a, q, k, v, m.scores(m.Window))
		x = a.Linear("o_proj", h, c.HiddenSize, false).Add(x)
		h = b.RMSNorm("post_attention_layernorm", x, m.NormEps)
		return m.gatedMLP(b.Sub("mlp"), h, false).Add(x)
	})
	return l.outputs(l.body.RMSNorm("norm", x, m.NormEps))
}
