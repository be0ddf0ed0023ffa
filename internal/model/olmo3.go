package model

import (
	"encoding/json"
	"maps"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	registerDecoder("olmo3", readOlmo3, "Olmo3ForCausalLM", "Olmo3Model", "Olmo3ForSequenceClassification")
}

// olmo3 is OLMo 3 (Olmo Team 2025, arXiv 2512.13961): an OLMo 2 with sliding attention in three
// of four layers. Only the layers with full attention have scaled rotary frequencies.
type olmo3 struct {
	decoder       // its RoPE is that of layers with full attention
	AttentionBias bool
	LayerTypes    []string // by layer
	Window        int      // of the layers with sliding attention
	LocalRoPE     RoPE     // of these layers
}

func readOlmo3(c *Config, f *Fields) Family {
	f.defaults(c, defaults{MaxPositions: 2048, BOS: -1, EOS: []int32{50279}, Padding: 1})
	m := &olmo3{decoder: f.decoder(c)}
	m.NormEps = float32(f.Float("rms_norm_eps", 1e-5))
	m.AttentionBias = f.Bool("attention_bias", false)
	m.LayerTypes = f.layerKinds(max(0, c.Layers), 4)
	m.Window = f.kindWindow(&m.decoder, m.LayerTypes, 4096)
	f.scaleFullAttention()
	const theta = 500000 // transformers has this default for sliding layers, whatever rope_theta is
	m.RoPE = f.ropeOf(c, fullAttention, plainRoPE(c, m.HeadDim, f.Float("rope_theta", theta)))
	m.LocalRoPE = f.ropeOf(c, slidingAttention, plainRoPE(c, m.HeadDim, theta))
	return m
}

// scaleFullAttention moves rope_scaling of transformers 4 to the table of layers with full
// attention. As in transformers 5, its keys replace those of the table.
func (f *Fields) scaleFullAttention() {
	const key = "rope_parameters"
	scaling, tables := f.Object("rope_scaling"), f.Object(key)
	if len(scaling.values) == 0 {
		return
	}
	if len(tables.values) > 0 && !tables.Has(fullAttention) {
		f.Fail(key, "nothing for "+fullAttention, "a table, which rope_scaling changes")
		return
	}
	full := tables.Object(fullAttention)
	values := map[string]json.RawMessage{"rope_type": json.RawMessage(`"default"`)}
	maps.Copy(values, full.values)
	maps.Copy(values, scaling.values)
	if tables.values == nil {
		tables.values = map[string]json.RawMessage{}
	}
	tables.set(fullAttention, &Fields{values: values})
	f.set(key, tables)
}

// Build implements Family.
func (m *olmo3) Build(c *Config, b *nn.Builder) Outputs {
	l := m.language(c, b)
	x := l.embed()
	full := m.RoPE.table(b, fullAttention, l.Positions)
	sliding := m.LocalRoPE.table(b, slidingAttention, l.Positions)
	x = l.layers(x, func(b *nn.Builder, i int, x graph.Tensor) graph.Tensor {
		rope, window := full, 0
		if m.LayerTypes[i] == slidingAttention {
			rope, window = sliding, m.Window
		}
		a := b.Sub("self_attn")
		q, k, v := m.project(a, x, m.AttentionBias)
		q, k = a.RMSNorm("q_norm", q, m.NormEps), a.RMSNorm("k_norm", k, m.NormEps)
		q, k = q.RoPE(rope, m.HeadDim), k.RoPE(rope, m.HeadDim)
		h := l.attention(a, q, k, v, m.scores(window))
		h = a.Linear("o_proj", h, c.HiddenSize, m.AttentionBias)
		x = b.RMSNorm("post_attention_layernorm", h, m.NormEps).Add(x)
		h = m.gatedMLP(b.Sub("mlp"), x, false)
		return b.RMSNorm("post_feedforward_layernorm", h, m.NormEps).Add(x)
	})
	return l.outputs(l.body.RMSNorm("norm", x, m.NormEps))
}
