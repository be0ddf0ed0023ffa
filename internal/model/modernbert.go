package model

import (
	"math"
	"regexp"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	for _, head := range []string{"Model", "ForMaskedLM", "ForSequenceClassification"} {
		Register("ModernBert"+head, Architecture{ModelType: "modernbert", Read: readModernBert})
	}
}

// modernBert is ModernBERT (Warner et al. 2024, arXiv 2412.13663): rotary positions, norms
// before attention and MLP, a gated MLP, and attention that is local in most layers.
type modernBert struct {
	*Encoder
	modernBertSettings
}

type modernBertSettings struct {
	AttentionBias, MLPBias, NormBias bool
	Window                           int // of local layers: the distance at which keys are no longer seen
	LayerTypes                       []string
	Global, Local                    RoPE
}

var modernBertHeads = regexp.MustCompile(`^(head|decoder)\.`)

func readModernBert(c *Config, f *Fields) Family {
	for key, def := range map[string]string{"max_position_embeddings": "8192", "pad_token_id": "50283", "eos_token_id": "50282", "bos_token_id": "50281"} {
		if _, given := f.values[key]; !given {
			f.values[key] = []byte(def)
		}
	}
	f.shared(c)
	m := &modernBert{f.encoder(c, "model."), modernBertSettings{
		AttentionBias: f.Bool("attention_bias", false), MLPBias: f.Bool("mlp_bias", false), NormBias: f.Bool("norm_bias", false),
		Window: f.Int("local_attention", 128)/2 + 1,
	}}
	if f.err != nil || m.Heads < 1 || m.Window < 1 {
		f.Fail("local_attention", 2*m.Window-2, "0 or more, with num_attention_heads of 1 or more")
		return m.Encoder
	}
	m.Types, m.NormEps = 0, float32(f.Float("norm_eps", 1e-5))
	m.Activation = f.activation("hidden_activation", "gelu")
	m.kinds(c, f)
	m.OtherHeads, m.States = modernBertHeads, m.states
	m.head(c, f)
	m.Settings = m.modernBertSettings
	return m.Encoder
}

// kinds reads which layers have local attention, and the rotary embeddings of both kinds.
func (m *modernBert) kinds(c *Config, f *Fields) {
	every := f.Int("global_attn_every_n_layers", 3)
	if every < 1 {
		f.Fail("global_attn_every_n_layers", every, "1 or more")
		return
	}
	if m.LayerTypes = f.layerTypes(max(0, c.Layers)); m.LayerTypes == nil {
		for i := range max(0, c.Layers) {
			kind := slidingAttention
			if i%every == 0 {
				kind = fullAttention
			}
			m.LayerTypes = append(m.LayerTypes, kind)
		}
	}
	if f.Has("rope_scaling") {
		f.Unsupported("rope_scaling", string(f.values["rope_scaling"]), []string{"null"})
	}
	d := c.HiddenSize / m.Heads
	m.Global = f.ropeOf(c, fullAttention, plainRoPE(c, d, f.Float("global_rope_theta", 160000)))
	m.Local = f.ropeOf(c, slidingAttention, plainRoPE(c, d, f.Float("local_rope_theta", 10000)))
	if d%2 != 0 {
		f.Fail("hidden_size", c.HiddenSize, "heads of an even size")
	}
}

// head reads the head of classifiers: a linear layer, an activation function, a norm, and a
// linear layer.
func (m *modernBert) head(c *Config, f *Fields) {
	act, bias := f.activation("classifier_activation", "gelu"), f.Bool("classifier_bias", false)
	deviation := f.Float("initializer_range", 0.02) / math.Sqrt(2*float64(max(1, c.Layers)))
	m.Head = func(c *Config) []headLayer {
		dense, last := c.headLinear("head.dense", c.HiddenSize), c.headLinear("classifier", len(c.Classes.Names))
		dense.Bias, dense.Deviation, last.Deviation = bias, deviation, 1/math.Sqrt(float64(c.HiddenSize))
		dense.Then = func(x graph.Tensor) graph.Tensor { return x.Activate(act) }
		norm := headLayer{Module: nn.Module{Name: "head.norm", Kind: nn.KindNorm, In: c.HiddenSize, Out: c.HiddenSize, Bias: m.NormBias}, Eps: m.NormEps}
		return []headLayer{dense, norm, last}
	}
	switch pooling := f.String("classifier_pooling", "cls"); pooling {
	case "cls":
	case "mean":
		m.Pool = func(b *nn.Builder, in nn.Text, x graph.Tensor) graph.Tensor {
			if !x.Valid() {
				return x
			}
			none := x.Scale(0) // with equal scores, attention is the mean over the text
			return b.Attention(in, none, none, x, m.heads(c))
		}
	default:
		f.Unsupported("classifier_pooling", pooling, []string{"cls", "mean"})
	}
}

func (m *modernBert) states(c *Config, b *nn.Builder, in nn.Text) []graph.Tensor {
	embeddings, a, d := b.Sub("embeddings"), m.heads(c), c.HiddenSize
	x := embeddings.Embedding(nn.Vocabulary, "tok_embeddings", in.Tokens, c.VocabSize, d, c.Padding)
	x = layerNorm(embeddings, "norm", x, m.NormEps, m.NormBias)
	global, local := m.Global.table(b, fullAttention, in.Positions), m.Local.table(b, slidingAttention, in.Positions)
	near := b.Near(in, m.Window)
	all := m.layers(c, b, "layers", x, func(b *nn.Builder, i int, x graph.Tensor) graph.Tensor {
		h, rope, text := x, global, in
		if m.LayerTypes[i] == slidingAttention {
			rope, text = local, near
		}
		if i > 0 {
			h = layerNorm(b, "attn_norm", x, m.NormEps, m.NormBias)
		}
		attn, mlp := b.Sub("attn"), b.Sub("mlp")
		qkv := attn.Linear("Wqkv", h, 3*d, m.AttentionBias)
		if !qkv.Valid() {
			return qkv
		}
		q, k := qkv.Slice(1, 0, d).RoPE(rope, a.HeadDim), qkv.Slice(1, d, 2*d).RoPE(rope, a.HeadDim)
		h = b.Attention(text, q, k, qkv.Slice(1, 2*d, 3*d), a)
		x = attn.Linear("Wo", h, d, m.AttentionBias).Add(x)
		h = mlp.Linear("Wi", layerNorm(b, "mlp_norm", x, m.NormEps, m.NormBias), 2*m.Intermediate, m.MLPBias)
		if !h.Valid() {
			return h
		}
		h = h.Slice(1, 0, m.Intermediate).GLU(h.Slice(1, m.Intermediate, 2*m.Intermediate), m.Activation)
		return mlp.Linear("Wo", h, d, m.MLPBias).Add(x)
	})
	all[c.Layers] = layerNorm(b, "final_norm", all[c.Layers], m.NormEps, m.NormBias)
	return all
}

// layerNorm emits a layer norm with or without a bias.
func layerNorm(b *nn.Builder, name string, x graph.Tensor, eps float32, bias bool) graph.Tensor {
	if bias {
		return b.LayerNorm(name, x, eps)
	}
	return b.LayerNormScaled(name, x, eps)
}
