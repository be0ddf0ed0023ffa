package model

import (
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	registerDecoder("gpt_neox", readGPTNeoX, "GPTNeoXForCausalLM", "GPTNeoXModel", "GPTNeoXForSequenceClassification")
}

// gptNeoX is GPT-NeoX and Pythia (Black et al. 2022, arXiv 2204.06745; Biderman et al. 2023,
// arXiv 2304.01373). q, k and v are one linear layer, head by head, and a part of each head is
// rotated. Attention and MLP may read the same state, each with a norm of its own.
type gptNeoX struct {
	decoder
	AttentionBias bool
	Parallel      bool
}

func readGPTNeoX(c *Config, f *Fields) Family {
	f.defaults(c, defaults{MaxPositions: 2048, BOS: 0, EOS: []int32{2}, Padding: -1})
	for _, key := range []string{"num_key_value_heads", "head_dim"} { // which are none of its keys
		delete(f.values, key)
	}
	m := &gptNeoX{decoder: f.decoder(c)}
	m.called = names{Body: "gpt_neox", Layers: "layers", Embedding: "embed_in"}
	m.NormEps = float32(f.Float("layer_norm_eps", 1e-5))
	m.Activation = f.activation("hidden_act", "gelu")
	delete(f.values, "rope_theta") // its own keys come first
	delete(f.values, rotaryShare)
	m.RoPE = f.partialRoPE(c, m.HeadDim, f.Float("rotary_emb_base", 10000), f.Float("rotary_pct", 0.25))
	m.AttentionBias = f.Bool("attention_bias", true)
	m.Parallel = f.Bool("use_parallel_residual", true)
	if m.Heads > 0 && c.HiddenSize%m.Heads != 0 {
		f.Fail("hidden_size", c.HiddenSize, "a multiple of num_attention_heads")
	}
	return m
}

// OtherNames implements [Renamer]: files of transformers 4 call the head embed_out.
func (m *gptNeoX) OtherNames(name string) []string {
	if name == headWeight {
		return []string{"embed_out.weight"}
	}
	return m.decoder.OtherNames(name)
}

// Skips implements [Skipper].
func (m *gptNeoX) Skips(c *Config) []Skip {
	return append(m.decoder.Skips(c), causalMasks)
}

// Build implements Family.
func (m *gptNeoX) Build(c *Config, b *nn.Builder) Outputs {
	l, d := m.language(c, b), c.HiddenSize
	x := l.body.Embedding(nn.Vocabulary, l.names.Embedding, l.Tokens, c.VocabSize, d, -1)
	rope := m.RoPE.table(b, "", l.Positions)
	x = l.layers(x, func(b *nn.Builder, _ int, x graph.Tensor) graph.Tensor {
		a, mlp := b.Sub("attention"), b.Sub("mlp")
		qkv := a.Linear("query_key_value", b.LayerNorm("input_layernorm", x, m.NormEps), 3*d, m.AttentionBias)
		if !qkv.Valid() {
			return qkv
		}
		n := qkv.Type().Shape[0]
		qkv = qkv.Reshape(n, ir.Static(m.Heads), ir.Static(3*m.HeadDim))
		part := func(i int) graph.Tensor { return qkv.Slice(2, i*m.HeadDim, (i+1)*m.HeadDim).Reshape(n, ir.Static(d)) }
		q, k := m.RoPE.rotate(part(0), rope, m.HeadDim), m.RoPE.rotate(part(1), rope, m.HeadDim)
		attended := a.Linear("dense", l.attention(a, q, k, part(2), m.scores(0)), d, m.AttentionBias).Add(x)
		if !m.Parallel {
			x = attended
		}
		h := mlp.Linear("dense_h_to_4h", b.LayerNorm("post_attention_layernorm", x, m.NormEps), m.Intermediate, true)
		if !h.Valid() {
			return h
		}
		return mlp.Linear("dense_4h_to_h", h.Activate(m.Activation), d, true).Add(attended)
	})
	return l.outputs(l.body.LayerNorm("final_layer_norm", x, m.NormEps))
}
