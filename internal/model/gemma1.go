package model

import (
	"math"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	registerDecoder("gemma", readGemma1, "GemmaForCausalLM", "GemmaModel", "GemmaForSequenceClassification")
}

// gemma1 is Gemma (Gemma Team 2024, arXiv 2403.08295). It is a Llama with scaled embeddings, norms
// whose stored weights are the weights minus 1, and a tanh-approximated GELU.
type gemma1 struct {
	gemma
}

func readGemma1(c *Config, f *Fields) Family {
	m := &gemma1{gemma: f.gemma(c, 8192)}
	m.Activation = f.activation("hidden_act", "gelu_pytorch_tanh")
	if m.Activation == ir.GELU { // what the first files say and do not mean
		m.Activation = ir.GELUTanh
	}
	m.RoPE = f.rope(c, m.HeadDim, 10000)
	if f.Bool("use_bidirectional_attention", false) { // transformers reads this key only for some attention kernels
		f.Unsupported("use_bidirectional_attention", true, []string{"false"})
	}
	return m
}

// Build implements Family.
func (m *gemma1) Build(c *Config, b *nn.Builder) Outputs {
	l := m.language(c, b)
	x := l.embed().Scale(math.Sqrt(float64(c.HiddenSize)))
	rope := m.RoPE.table(b, "", l.Positions)
	x = l.layers(x, func(b *nn.Builder, _ int, x graph.Tensor) graph.Tensor {
		h := m.norm(b, "input_layernorm", x)
		a := b.Sub("self_attn")
		q, k, v := m.project(a, h, m.AttentionBias)
		q, k = q.RoPE(rope, m.HeadDim), k.RoPE(rope, m.HeadDim)
		h = l.attention(a, q, k, v, m.decoder.scores(0))
		x = a.Linear("o_proj", h, c.HiddenSize, m.AttentionBias).Add(x)
		h = m.norm(b, "post_attention_layernorm", x)
		return m.gatedMLP(b.Sub("mlp"), h, false).Add(x)
	})
	return l.outputs(m.norm(l.body, "norm", x))
}
