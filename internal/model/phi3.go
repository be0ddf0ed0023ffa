package model

import (
	"encoding/json"
	"slices"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	registerDecoder("phi3", readPhi3, "Phi3ForCausalLM", "Phi3Model", "Phi3ForSequenceClassification")
}

// phi3 is Phi-3, Phi-3.5 and Phi-4 (Abdin et al. 2024, arXiv 2404.14219): one linear layer for
// q, k and v, and one for gate and up. A part of each head is rotated, with frequencies that
// depend on whether a text is longer than the texts of pretraining (longrope).
type phi3 struct {
	decoder
	Window int
}

func readPhi3(c *Config, f *Fields) Family {
	f.defaults(c, defaults{MaxPositions: 4096, BOS: 1, EOS: []int32{32000}, Padding: 32000})
	m := &phi3{decoder: f.decoder(c)}
	m.NormEps = float32(f.Float("rms_norm_eps", 1e-5))
	f.longRoPE()
	m.RoPE = f.partialRoPE(c, m.HeadDim, 10000, 1)
	m.RoPE.Reread = m.RoPE.Type == "longrope" // as transformers generates with this class
	m.Window = f.slidingWindow(&m.decoder, 0)
	// In training, this dropout would follow attention and MLP.
	if p := f.Float("resid_pdrop", 0); p != 0 {
		f.Unsupported("resid_pdrop", p, []string{"0"})
	}
	return m
}

// longRoPE rewrites the rotary keys of Phi-3 as other models spell them. Early files have other
// names for longrope, and the length before scaling is a key of the top level, with a default.
func (f *Fields) longRoPE() {
	if !f.Has(originalLength) {
		f.values[originalLength] = json.RawMessage("4096")
	}
	key := f.ropeKey()
	s := f.Object(key)
	switch kind := s.String("rope_type", s.String("type", "default")); {
	case slices.Contains([]string{"su", "yarn"}, kind):
		s.values["rope_type"] = json.RawMessage(`"longrope"`)
		f.set(key, s)
	case kind != "default" && kind != "longrope":
		f.Unsupported(key+": rope_type", kind, []string{"default", "longrope"})
	}
}

// Build implements Family.
func (m *phi3) Build(c *Config, b *nn.Builder) Outputs {
	l := m.language(c, b)
	x := l.embed()
	rope := m.RoPE.table(b, "", l.Positions)
	queries, keys := m.Heads*m.HeadDim, m.KVHeads*m.HeadDim
	x = l.layers(x, func(b *nn.Builder, _ int, x graph.Tensor) graph.Tensor {
		h := b.RMSNorm("input_layernorm", x, m.NormEps)
		a := b.Sub("self_attn")
		qkv := a.Linear("qkv_proj", h, queries+2*keys, false)
		q := m.RoPE.rotate(qkv.Slice(1, 0, queries), rope, m.HeadDim)
		k := m.RoPE.rotate(qkv.Slice(1, queries, queries+keys), rope, m.HeadDim)
		h = l.attention(a, q, k, qkv.Slice(1, queries+keys, graph.End), m.scores(m.Window))
		x = a.Linear("o_proj", h, c.HiddenSize, false).Add(x)
		h = b.RMSNorm("post_attention_layernorm", x, m.NormEps)
		return m.fusedMLP(b.Sub("mlp"), h, "gate_up_proj", "down_proj").Add(x)
	})
	return l.outputs(l.body.RMSNorm("norm", x, m.NormEps))
}
