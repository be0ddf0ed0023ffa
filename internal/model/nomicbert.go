package model

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	// Nomic BERT (Nussbaum et al. 2024, arXiv 2402.01613).
	for _, head := range []string{"Model", "ForMaskedLM", "ForPreTraining", "ForSequenceClassification"} {
		Register("NomicBert"+head, Architecture{ModelType: "nomic_bert", Whole: true, Read: readNomicBert})
	}
}

// rotary is BERT with rotary positions and a gated MLP, as Nomic BERT and GTE are.
type rotary struct {
	*Encoder
	rotarySettings
}

type rotarySettings struct {
	HeadDim  int
	RoPE     RoPE
	QKVOBias bool // of the layers of attention
	DownBias bool // of the last layer of the MLP
}

// nomicKeys are keys of the model's own code, which has them from GPT-2.
var nomicKeys = map[string]string{
	"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head", "intermediate_size": "n_inner",
	"max_position_embeddings": "n_positions", "layer_norm_eps": "layer_norm_epsilon", "rope_theta": "rotary_emb_base",
}

func readNomicBert(c *Config, f *Fields) Family {
	for key, own := range nomicKeys {
		if f.Has(own) {
			f.values[key] = f.values[own]
		}
	}
	f.nomicOnly()
	scaling := f.Float("rotary_scaling_factor", 0)
	if scaling != 0 {
		f.values["rope_scaling"], _ = json.Marshal(map[string]any{"rope_type": "dynamic", "factor": scaling})
	}
	f.shared(c)
	m := f.rotary(c, "nomic_bert.", 1000)
	if trained := f.Int("max_trained_positions", c.MaxPositions); scaling != 0 {
		if m.RoPE.MaxPositions = trained; trained < 1 {
			f.Fail("max_trained_positions", trained, "1 or more")
		}
	}
	m.Prefixes = []string{"bert."}
	m.StoredNames = strings.NewReplacer("embeddings.LayerNorm.", "emb_ln.", "layers.", "encoder.layers.", "self_attn.o_proj.", "attn.out_proj.",
		"up_proj.", "fc11.", "gate_proj.", "fc12.", "down_proj.", "fc2.", "post_attention_layernorm.", "norm1.", "post_mlp_layernorm.", "norm2.")
	m.StoredLayers = "encoder.layers"
	m.Fused = []fusedLayer{{"attn.Wqkv", []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}}}
	m.Settings = m.rotarySettings
	return m.Encoder
}

// nomicOnly refuses the settings of the model's own code that are not computed.
func (f *Fields) nomicOnly() {
	const activation = "activation_function"
	switch name := f.String(activation, "swiglu"); name {
	case "swiglu":
	case "geglu":
		f.values["hidden_act"] = json.RawMessage(`"gelu"`)
	default:
		f.Unsupported(activation, name, []string{"swiglu", "geglu"})
	}
	if !f.Has("hidden_act") {
		f.values["hidden_act"] = json.RawMessage(`"silu"`)
	}
	for _, key := range []string{"qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "prenorm", "parallel_block", "use_rms_norm", "causal", "rotary_emb_interleaved"} {
		if f.Bool(key, false) {
			f.Unsupported(key, true, []string{"false"})
		}
	}
	for key, one := range ordered(map[string]float64{"rotary_emb_fraction": 1, "rotary_emb_scale_base": 0, "moe_every_n_layers": 0}) {
		if x := f.Float(key, one); x != one {
			f.Unsupported(key, x, []string{fmt.Sprint(one)})
		}
	}
}

// rotary reads the keys that these encoders share. theta is the default base of positions.
func (f *Fields) rotary(c *Config, prefix string, theta float64) *rotary {
	m := &rotary{Encoder: f.encoder(c, prefix)}
	m.Types, m.Positions = f.Int("type_vocab_size", 2), 0
	m.HeadDim = f.Int("head_dim", c.HiddenSize/max(1, m.Heads))
	if m.HeadDim < 2 || m.HeadDim%2 != 0 || m.HeadDim > maxSize {
		f.Fail("head_dim", m.HeadDim, "an even number")
	}
	m.RoPE = f.rope(c, m.HeadDim, theta)
	m.Head = func(c *Config) []headLayer {
		return []headLayer{c.headLinear(prefix+"pooler.dense", c.HiddenSize).then(ir.Tanh), c.headLinear("classifier", len(c.Classes.Names))}
	}
	m.States = m.states
	return m
}

func (m *rotary) states(c *Config, b *nn.Builder, in nn.Text) []graph.Tensor {
	x, rope := m.embed(c, b.Sub("embeddings"), in), m.RoPE.table(b, "", in.Positions)
	size := m.Heads * m.HeadDim
	a := ir.AttentionAttr{Heads: m.Heads, KVHeads: m.Heads, HeadDim: m.HeadDim, Scale: float32(1 / math.Sqrt(float64(m.HeadDim)))}
	return m.layers(c, b, "layers", x, func(b *nn.Builder, _ int, x graph.Tensor) graph.Tensor {
		attn, mlp := b.Sub("self_attn"), b.Sub("mlp")
		q := m.RoPE.rotate(attn.Linear("q_proj", x, size, m.QKVOBias), rope, m.HeadDim)
		k := m.RoPE.rotate(attn.Linear("k_proj", x, size, m.QKVOBias), rope, m.HeadDim)
		v := attn.Linear("v_proj", x, size, m.QKVOBias)
		h := attn.Linear("o_proj", b.Attention(in, q, k, v, a), c.HiddenSize, m.QKVOBias)
		x = b.LayerNorm("post_attention_layernorm", h.Add(x), m.NormEps)
		gate := mlp.Linear("gate_proj", x, m.Intermediate, false)
		h = gate.GLU(mlp.Linear("up_proj", x, m.Intermediate, false), m.Activation)
		h = mlp.Linear("down_proj", h, c.HiddenSize, m.DownBias)
		return b.LayerNorm("post_mlp_layernorm", h.Add(x), m.NormEps)
	})
}
