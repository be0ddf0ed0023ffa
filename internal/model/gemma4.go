package model

import (
	"math"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

func init() {
	registerDecoder("gemma4_text", readGemma4, "Gemma4ForCausalLM", "Gemma4TextModel")
	registerWrapper("gemma4", readWrappedGemma4, "Gemma4ForConditionalGeneration", "Gemma4Model")
}

func readWrappedGemma4(c *Config, f *Fields) Family {
	m := f.wrapped(c, "gemma4_text")
	f.tie(c, true)
	return m
}

// gemma4 is the language model of Gemma 4 (Google DeepMind 2026). Layers with full attention have
// heads of another size, and may use their keys as values. The last layers may use the keys and
// values of the last layer before them that is of their kind. With per-layer embeddings, each
// layer adds a product of its state and an embedding of the token that is its own.
type gemma4 struct {
	decoder
	AttentionBias bool
	LayerTypes    []string
	Window        int // of the layers with sliding attention
	GlobalRoPE    RoPE
	LayerHeads    []layerHeads
	KeysAreValues bool `json:",omitempty"` // in layers with full attention
	Shared        int  `json:",omitempty"` // the number of last layers without keys of their own
	DoubleMLP     bool `json:",omitempty"` // of these layers
	PerLayer      int  `json:",omitempty"` // the size of an embedding of a layer; 0: there is none
	PerLayerVocab int  `json:",omitempty"`
	LogitCap      float64
}

// layerHeads are the sizes of heads in a layer.
type layerHeads struct{ KVHeads, HeadDim int }

// source returns the number of the layer whose keys and values layer i uses, or -1.
func (m *gemma4) source(i int) int {
	last := len(m.LayerTypes) - m.Shared
	if i < last {
		return i
	}
	for j := last - 1; j >= 0; j-- {
		if m.LayerTypes[j] == m.LayerTypes[i] {
			return j
		}
	}
	return -1
}

// Build implements Family.
func (m *gemma4) Build(c *Config, b *nn.Builder) Outputs {
	l := m.language(c, b)
	l.logitCap = m.LogitCap
	x := l.embed().Scale(math.Sqrt(float64(c.HiddenSize)))
	ropes := map[string]graph.Tensor{slidingAttention: m.RoPE.table(b, slidingAttention, l.Positions), fullAttention: m.GlobalRoPE.table(b, fullAttention, l.Positions)}
	perLayer, kept := m.perLayer(c, l, x), map[int]nn.Kept{}
	x = l.layers(x, func(b *nn.Builder, i int, x graph.Tensor) graph.Tensor {
		kind, shared := m.LayerTypes[i], m.source(i) != i
		scores := m.scores(0)
		scores.Scale, scores.HeadDim, scores.KVHeads = 1, m.LayerHeads[i].HeadDim, m.LayerHeads[i].KVHeads
		if kind == slidingAttention {
			scores.Window = m.Window
		}
		d, rope, a := scores.HeadDim, ropes[kind], b.Sub("self_attn")
		norm := func(x graph.Tensor, w string) graph.Tensor {
			return nn.PerHead(x, d, func(x graph.Tensor) graph.Tensor { return a.RMSNorm(w, x, m.NormEps) })
		}
		h := b.RMSNorm("input_layernorm", x, m.NormEps)
		q := norm(a.Linear("q_proj", h, m.Heads*d, m.AttentionBias), "q_norm").RoPE(rope, d)
		if !shared {
			k := a.Linear("k_proj", h, scores.KVHeads*d, m.AttentionBias)
			v := k
			if !m.KeysAreValues || kind == slidingAttention {
				v = a.Linear("v_proj", h, scores.KVHeads*d, m.AttentionBias)
			}
			v = nn.PerHead(v, d, func(v graph.Tensor) graph.Tensor { return v.RMSNorm(b.G.Const(1, ir.Static(d)), m.NormEps) })
			kept[i] = a.Keep(norm(k, "k_norm").RoPE(rope, d), v)
		}
		h = l.attentionOver(a, q, kept[m.source(i)], scores)
		h = a.Linear("o_proj", h, c.HiddenSize, m.AttentionBias)
		x = b.RMSNorm("post_attention_layernorm", h, m.NormEps).Add(x)
		mlp := m.decoder
		if shared && m.DoubleMLP {
			mlp.Intermediate *= 2
		}
		h = mlp.gatedMLP(b.Sub("mlp"), b.RMSNorm("pre_feedforward_layernorm", x, m.NormEps), false)
		x = b.RMSNorm("post_feedforward_layernorm", h, m.NormEps).Add(x)
		if m.PerLayer > 0 && perLayer.Valid() && x.Valid() {
			own := perLayer.Slice(1, i*m.PerLayer, (i+1)*m.PerLayer)
			h = b.Linear("per_layer_input_gate", x, m.PerLayer, false).GLU(own, m.Activation)
			h = b.Linear("per_layer_projection", h, c.HiddenSize, false)
			x = b.RMSNorm("post_per_layer_input_norm", h, m.NormEps).Add(x)
		}
		return x.Mul(b.Frozen(b.Name("layer_scalar"), 1).Cast(tensor.F32))
	})
	return l.outputs(l.body.RMSNorm("norm", x, m.NormEps))
}

// perLayer returns the embeddings of all layers, [tokens, layers·size]: those of the tokens, and a
// projection of the input embedding x, normalized for each layer.
func (m *gemma4) perLayer(c *Config, l *language, x graph.Tensor) graph.Tensor {
	if m.PerLayer == 0 {
		return graph.Tensor{}
	}
	size := c.Layers * m.PerLayer
	tokens := l.body.Embedding(nn.Attributes, "embed_tokens_per_layer", l.Tokens, m.PerLayerVocab, size, c.Padding).Scale(math.Sqrt(float64(m.PerLayer)))
	h := l.body.Linear("per_layer_model_projection", x, size, false)
	if !h.Valid() || !tokens.Valid() {
		return h
	}
	h = nn.PerHead(h.Scale(1/math.Sqrt(float64(c.HiddenSize))), m.PerLayer, func(h graph.Tensor) graph.Tensor {
		return l.body.RMSNorm("per_layer_projection_norm", h, m.NormEps)
	})
	return h.Add(tokens).Scale(math.Sqrt(0.5))
}
