package model

import (
	"math"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	registerDecoder("gemma2", readGemma2, "Gemma2ForCausalLM", "Gemma2Model", "Gemma2ForSequenceClassification")
}

// gemma2 is Gemma 2 (Gemma Team 2024, arXiv 2408.00118). Every other layer has sliding
// attention, attention scores and logits have soft caps, and norms precede and follow
// attention and MLP.
type gemma2 struct {
	gemma
	ScoreCap, LogitCap float64 // 0: none
}

func readGemma2(c *Config, f *Fields) Family {
	m := &gemma2{gemma: f.gemmaLayers(c, 8192, 2)}
	m.RoPE = f.rope(c, m.HeadDim, 10000)
	m.Window = m.window(m.Window)
	m.ScoreCap = f.softCap("attn_logit_softcapping", 50)
	m.LogitCap = f.softCap("final_logit_softcapping", 30)
	if f.Bool("use_bidirectional_attention", false) { // transformers reads this key only for some attention kernels
		f.Unsupported("use_bidirectional_attention", true, []string{"false"})
	}
	return m
}

// softCap reads a soft cap: def if the key is missing, 0 if it is null.
func (f *Fields) softCap(key string, def float64) float64 {
	if f.Null(key) {
		return 0
	}
	limit := f.Float(key, def)
	if !(limit > 0) || float32(limit) == 0 || math.IsInf(float64(float32(limit)), 0) {
		f.Fail(key, limit, "null or a positive float32")
	}
	return limit
}

// Build implements Family.
func (m *gemma2) Build(c *Config, b *nn.Builder) Outputs {
	l := m.language(c, b)
	l.logitCap = m.LogitCap
	x := l.embed().Scale(math.Sqrt(float64(c.HiddenSize)))
	rope := m.RoPE.table(b, "", l.Positions)
	x = l.layers(x, func(b *nn.Builder, i int, x graph.Tensor) graph.Tensor {
		h := m.norm(b, "input_layernorm", x)
		a, scores := b.Sub("self_attn"), m.scores(i)
		scores.SoftCap = float32(m.ScoreCap)
		q, k, v := m.project(a, h, m.AttentionBias)
		q, k = q.RoPE(rope, m.HeadDim), k.RoPE(rope, m.HeadDim)
		h = l.attention(a, q, k, v, scores)
		h = a.Linear("o_proj", h, c.HiddenSize, m.AttentionBias)
		x = m.norm(b, "post_attention_layernorm", h).Add(x)
		h = m.norm(b, "pre_feedforward_layernorm", x)
		h = m.gatedMLP(b.Sub("mlp"), h, false)
		return m.norm(b, "post_feedforward_layernorm", h).Add(x)
	})
	return l.outputs(m.norm(l.body, "norm", x))
}
