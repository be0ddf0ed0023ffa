package model

import (
	"math"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	registerDecoder("gemma3_text", readGemma3, "Gemma3ForCausalLM", "Gemma3TextModel", "Gemma3TextForSequenceClassification")
	registerWrapper("gemma3", readWrappedGemma3, "Gemma3ForConditionalGeneration", "Gemma3Model", "Gemma3ForSequenceClassification")
}

func readWrappedGemma3(c *Config, f *Fields) Family {
	const key = "use_bidirectional_attention"
	m := f.wrapped(c, "gemma3_text")
	f.tie(c, true)
	if f.err == nil && f.Object("text_config").Bool(key, false) { // transformers ignores it here, but not its effect on windows
		f.Unsupported("text_config: "+key, true, []string{"false"})
	}
	return m
}

// gemma3 is the language model of Gemma 3 (Gemma Team 2025, arXiv 2503.19786): sliding layers
// with a rotary embedding of their own, a norm on each head of q and k, and norms before and
// after attention and MLP. The RoPE of gemma is that of layers with full attention.
type gemma3 struct {
	gemma
	LocalRoPE RoPE // of layers with sliding attention
}

func readGemma3(c *Config, f *Fields) Family {
	pattern := f.Int("sliding_window_pattern", 6)
	if pattern < 1 {
		f.Fail("sliding_window_pattern", pattern, "1 or more")
		return &gemma3{}
	}
	m := &gemma3{gemma: f.gemmaLayers(c, 131072, pattern)}
	if f.Bool("use_bidirectional_attention", false) {
		// The window is split between both sides, and is_causal: false counts the query.
		m.Window = m.window(m.Window/2 + 1)
		m.Bidirectional = true
	} else {
		m.Window = m.window(m.Window)
	}
	f.scaleFullAttention()
	m.RoPE = f.ropeOf(c, fullAttention, plainRoPE(c, m.HeadDim, f.Float("rope_theta", 1e6)))
	m.LocalRoPE = f.ropeOf(c, slidingAttention, plainRoPE(c, m.HeadDim, f.Float("rope_local_base_freq", 10000)))
	for _, key := range []string{"attn_logit_softcapping", "final_logit_softcapping"} {
		if f.Has(key) {
			f.Unsupported(key, f.Float(key, 0), []string{"null"})
		}
	}
	return m
}

// Build implements Family.
func (m *gemma3) Build(c *Config, b *nn.Builder) Outputs {
	l := m.language(c, b)
	x := l.embed().Scale(math.Sqrt(float64(c.HiddenSize)))
	ropes := map[string]graph.Tensor{}
	for _, kind := range m.LayerTypes {
		if _, ok := ropes[kind]; !ok {
			ropes[kind] = m.rope(kind).table(b, kind, l.Positions)
		}
	}
	x = l.layers(x, func(b *nn.Builder, i int, x graph.Tensor) graph.Tensor {
		h := m.norm(b, "input_layernorm", x)
		a, rope := b.Sub("self_attn"), ropes[m.LayerTypes[i]]
		q, k, v := m.project(a, h, m.AttentionBias)
		q, k = m.headNorm(a, "q_norm", q, 1), m.headNorm(a, "k_norm", k, 1)
		q, k = q.RoPE(rope, m.HeadDim), k.RoPE(rope, m.HeadDim)
		h = l.attention(a, q, k, v, m.scores(i))
		h = a.Linear("o_proj", h, c.HiddenSize, m.AttentionBias)
		x = m.norm(b, "post_attention_layernorm", h).Add(x)
		h = m.norm(b, "pre_feedforward_layernorm", x)
		h = m.gatedMLP(b.Sub("mlp"), h, false)
		return m.norm(b, "post_feedforward_layernorm", h).Add(x)
	})
	return l.outputs(m.norm(l.body, "norm", x))
}

// rope returns the rotary embedding of a layer type.
func (m *gemma3) rope(kind string) RoPE {
	if kind == slidingAttention {
		return m.LocalRoPE
	}
	return m.RoPE
}
