package model

import (
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

func init() {
	registerDecoder("gpt_oss", readGPTOSS, "GptOssForCausalLM", "GptOssModel", "GptOssForSequenceClassification")
}

// gptOSS is gpt-oss (OpenAI 2025, arXiv 2508.10925): experts with biases and a clamped gate, a
// sink in the softmax of each head, and sliding attention in every other layer.
type gptOSS struct {
	decoder
	Mixture
	AttentionBias bool
	LayerTypes    []string
	Window        int // of the layers with sliding attention
}

func readGPTOSS(c *Config, f *Fields) Family {
	f.defaults(c, defaults{MaxPositions: 131072, BOS: -1, Padding: -1})
	if !f.Has("rope_parameters") {
		f.values["rope_parameters"] = []byte(`{"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
			"truncate": false, "original_max_position_embeddings": 4096}`)
	}
	m := &gptOSS{decoder: f.decoder(c)}
	if !f.given("num_key_value_heads") {
		m.KVHeads = 8
	}
	if !f.given("head_dim") {
		m.HeadDim = 64
	}
	m.NormEps = float32(f.Float("rms_norm_eps", 1e-5))
	m.RoPE = f.rope(c, m.HeadDim, 150000)
	m.AttentionBias = f.Bool("attention_bias", true)
	m.LayerTypes = f.layerKinds(max(0, c.Layers), 2)
	m.Window = f.kindWindow(&m.decoder, m.LayerTypes, 128)
	m.Mixture = f.mixture(nn.Experts{
		Count: 128, Chosen: 4, Units: m.Intermediate, Clamp: f.Float("swiglu_limit", 7), Gain: f.Float("swiglu_alpha", 1.702), Normalized: true,
		Layout: nn.Layout{Order: nn.InOut, Interleaved: true, Biased: true},
	})
	m.Experts.Router = "router.weight"
	if !(m.Experts.Clamp > 0) {
		f.Fail("swiglu_limit", m.Experts.Clamp, "more than 0")
	}
	return m
}

// Check implements Family.
func (m *gptOSS) Check(c *Config) error {
	if err := m.Mixture.check(); err != nil {
		return err
	}
	return m.decoder.Check(c)
}

// Build implements Family.
func (m *gptOSS) Build(c *Config, b *nn.Builder) Outputs {
	l := m.language(c, b)
	x := l.embed()
	rope := m.RoPE.table(b, "", l.Positions)
	x = l.layers(x, func(b *nn.Builder, i int, x graph.Tensor) graph.Tensor {
		window := 0
		if m.LayerTypes[i] == slidingAttention {
			window = m.Window
		}
		h := b.RMSNorm("input_layernorm", x, m.NormEps)
		a := b.Sub("self_attn")
		q, k, v := m.project(a, h, m.AttentionBias)
		q, k = q.RoPE(rope, m.HeadDim), k.RoPE(rope, m.HeadDim)
		sinks := a.Frozen(a.Name("sinks"), m.Heads).Cast(tensor.F32)
		h = l.sinkAttention(a, q, k, v, sinks, m.scores(window))
		x = a.Linear("o_proj", h, c.HiddenSize, m.AttentionBias).Add(x)
		h = b.RMSNorm("post_attention_layernorm", x, m.NormEps)
		return b.Sub("mlp").Experts(m.Experts, h).Add(x)
	})
	return m.balanced(b, l.outputs(l.body.RMSNorm("norm", x, m.NormEps)))
}

// sinkAttention emits attention as attention does, with a sink for each head.
func (l *language) sinkAttention(b *nn.Builder, q, k, v, sinks graph.Tensor, a ir.AttentionAttr) graph.Tensor {
	in, a := l.windowed(b, a)
	return b.SinkAttention(in, q, k, v, sinks, a)
}
