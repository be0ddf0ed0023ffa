package model

import (
	"fmt"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	registerDecoder("granite", readGranite, "GraniteForCausalLM", "GraniteModel")
	registerDecoder("granitemoehybrid", readGraniteHybrid, "GraniteMoeHybridForCausalLM", "GraniteMoeHybridModel")
}

// granite is Granite 3 (Granite Team 2024, "Granite 3.0 Language Models"): a Llama with factors
// for embeddings, scores and the outputs of attention and MLP, and a divisor for logits (muP,
// arXiv 2203.03466).
type granite struct {
	decoder
	AttentionBias, MLPBias                 bool
	Embedding, Residual, Attention, Logits float64
}

func readGranite(c *Config, f *Fields) Family {
	m := f.granite(c)
	m.RoPE = f.rope(c, m.HeadDim, 10000)
	m.MLPBias = f.Bool("mlp_bias", false)
	return &m
}

// granite reads the keys that both versions share.
func (f *Fields) granite(c *Config) granite {
	f.defaults(c, defaults{MaxPositions: 2048, BOS: 1, EOS: []int32{2}, Padding: -1})
	m := granite{
		decoder: f.decoder(c), AttentionBias: f.Bool("attention_bias", false),
		Embedding: f.Float("embedding_multiplier", 1), Residual: f.Float("residual_multiplier", 1),
		Attention: f.Float("attention_multiplier", 1), Logits: f.Float("logits_scaling", 1),
	}
	if m.Logits == 0 {
		f.Fail("logits_scaling", m.Logits, "a number other than 0")
	}
	return m
}

// scores returns the attributes of attention.
func (m *granite) scores() ir.AttentionAttr {
	a := m.decoder.scores(0)
	a.Scale = float32(m.Attention)
	return a
}

// Build implements Family.
func (m *granite) Build(c *Config, b *nn.Builder) Outputs {
	l := m.language(c, b)
	l.logitScale = m.logitScale(1 / m.Logits)
	x := l.embed().Scale(m.Embedding)
	rope := m.RoPE.table(b, "", l.Positions)
	x = l.layers(x, func(b *nn.Builder, _ int, x graph.Tensor) graph.Tensor {
		h := b.RMSNorm("input_layernorm", x, m.NormEps)
		a := b.Sub("self_attn")
		q, k, v := m.project(a, h, m.AttentionBias)
		q, k = q.RoPE(rope, m.HeadDim), k.RoPE(rope, m.HeadDim)
		h = l.attention(a, q, k, v, m.scores())
		x = a.Linear("o_proj", h, c.HiddenSize, m.AttentionBias).Scale(m.Residual).Add(x)
		h = b.RMSNorm("post_attention_layernorm", x, m.NormEps)
		return m.gatedMLP(b.Sub("mlp"), h, m.MLPBias).Scale(m.Residual).Add(x)
	})
	return l.outputs(l.body.RMSNorm("norm", x, m.NormEps))
}

// graniteHybrid is a dense Granite 4 without Mamba layers (IBM 2025, granite-4.0-micro). Its
// layers may have no positions (NoPE), and the MLP is the shared expert of the other models.
type graniteHybrid struct {
	granite
	Rotary bool
}

func readGraniteHybrid(c *Config, f *Fields) Family {
	m := &graniteHybrid{granite: f.granite(c)}
	m.Intermediate = f.Int("shared_intermediate_size", 1024)
	if n := f.Int("num_local_experts", 8); n != 0 {
		f.Unsupported("num_local_experts", n, []string{"0"})
	}
	kinds := f.Strings("layer_types")
	if kinds == nil {
		kinds = f.Strings("layers_block_type")
	}
	if kinds == nil {
		f.Unsupported("layer_types", "mamba (the default)", []string{"attention"})
	}
	for _, kind := range kinds {
		if kind != "attention" && kind != fullAttention {
			f.Unsupported("layer_types", kind, []string{"attention"})
		}
	}
	if len(kinds) != c.Layers {
		f.Fail("layer_types", fmt.Sprintf("%d entries", len(kinds)), fmt.Sprintf("%d, one for each layer", c.Layers))
	}
	if m.Rotary = f.String("position_embedding_type", "") == "rope"; m.Rotary {
		m.RoPE = f.rope(c, m.HeadDim, 10000)
	}
	return m
}

// Build implements Family.
func (m *graniteHybrid) Build(c *Config, b *nn.Builder) Outputs {
	l := m.language(c, b)
	l.logitScale = m.logitScale(1 / m.Logits)
	x := l.embed().Scale(m.Embedding)
	var rope graph.Tensor
	if m.Rotary {
		rope = m.RoPE.table(b, "", l.Positions)
	}
	x = l.layers(x, func(b *nn.Builder, _ int, x graph.Tensor) graph.Tensor {
		h := b.RMSNorm("input_layernorm", x, m.NormEps)
		a := b.Sub("self_attn")
		q, k, v := m.project(a, h, m.AttentionBias)
		if m.Rotary {
			q, k = q.RoPE(rope, m.HeadDim), k.RoPE(rope, m.HeadDim)
		}
		h = l.attention(a, q, k, v, m.scores())
		x = a.Linear("o_proj", h, c.HiddenSize, m.AttentionBias).Scale(m.Residual).Add(x)
		h = b.RMSNorm("post_attention_layernorm", x, m.NormEps)
		return m.fusedMLP(b.Sub("shared_mlp"), h, "input_linear", "output_linear").Scale(m.Residual).Add(x)
	})
	return l.outputs(l.body.RMSNorm("norm", x, m.NormEps))
}
