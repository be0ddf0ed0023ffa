package model

import (
	"fmt"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	registerDecoder("smollm3", readSmolLM3, "SmolLM3ForCausalLM", "SmolLM3Model", "SmolLM3ForSequenceClassification")
}

// smollm3 is SmolLM3 (Hugging Face 2025, "SmolLM3: smol, multilingual, long-context reasoner"):
// a Llama whose every fourth layer has no positions (NoPE, arXiv 2501.18795).
type smollm3 struct {
	decoder
	AttentionBias, MLPBias bool
	Rotary                 []bool // by layer
	Windows                []int  // by layer
}

func readSmolLM3(c *Config, f *Fields) Family {
	f.defaults(c, defaults{MaxPositions: 32768, Tied: true, BOS: 128000, EOS: []int32{128001}, Padding: 128004})
	m := &smollm3{decoder: f.decoder(c)}
	if !f.given("num_key_value_heads") {
		m.KVHeads = 4
	}
	m.RoPE = f.rope(c, m.HeadDim, 2e6)
	m.AttentionBias = f.Bool("attention_bias", false)
	m.MLPBias = f.Bool("mlp_bias", false)
	layers := max(0, c.Layers)
	m.Rotary = f.rotaryLayers(layers)
	kinds := f.layerTypes(layers)
	if kinds == nil && f.err == nil {
		slides := f.Bool("use_sliding_window", false) && f.Has("sliding_window")
		kinds = make([]string, layers)
		for i := range kinds {
			if kinds[i] = fullAttention; slides && !m.Rotary[i] {
				kinds[i] = slidingAttention
			}
		}
	}
	window := f.kindWindow(&m.decoder, kinds, 0)
	m.Windows = make([]int, layers)
	for i, kind := range kinds {
		if kind == slidingAttention {
			m.Windows[i] = window
		}
	}
	return m
}

// rotaryLayers reads no_rope_layers, which has a 1 for each layer with a rotary embedding.
// Without that key, every layer has one except the last of each no_rope_layer_interval.
func (f *Fields) rotaryLayers(layers int) []bool {
	const key = "no_rope_layers"
	rotary := make([]bool, layers)
	given, interval := f.Ints(key), f.Int("no_rope_layer_interval", 4)
	switch {
	case f.Has(key) && len(given) < layers:
		f.Fail(key, fmt.Sprintf("%d entries", len(given)), fmt.Sprintf("%d, one for each layer", layers))
		return rotary
	case !f.Has(key) && interval < 1:
		f.Fail("no_rope_layer_interval", interval, "1 or more")
		return rotary
	}
	for i := range rotary {
		if f.Has(key) {
			rotary[i] = given[i] != 0
		} else {
			rotary[i] = (i+1)%interval != 0
		}
	}
	return rotary
}

// Build implements Family.
func (m *smollm3) Build(c *Config, b *nn.Builder) Outputs {
	l := m.language(c, b)
	x := l.embed()
	rope := m.RoPE.table(b, "", l.Positions)
	x = l.layers(x, func(b *nn.Builder, i int, x graph.Tensor) graph.Tensor {
		h := b.RMSNorm("input_layernorm", x, m.NormEps)
		a := b.Sub("self_attn")
		q, k, v := m.project(a, h, m.AttentionBias)
		if m.Rotary[i] {
			q, k = q.RoPE(rope, m.HeadDim), k.RoPE(rope, m.HeadDim)
		}
		h = l.attention(a, q, k, v, m.scores(m.Windows[i]))
		x = a.Linear("o_proj", h, c.HiddenSize, m.AttentionBias).Add(x)
		h = b.RMSNorm("post_attention_layernorm", x, m.NormEps)
		return m.gatedMLP(b.Sub("mlp"), h, m.MLPBias).Add(x)
	})
	return l.outputs(l.body.RMSNorm("norm", x, m.NormEps))
}
