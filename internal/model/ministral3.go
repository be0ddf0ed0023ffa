package model

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	registerDecoder("ministral3", readMinistral3, "Ministral3ForCausalLM", "Ministral3Model", "Ministral3ForSequenceClassification")
}

// ministral3 is Ministral 3 (Mistral AI 2025). It is a Mistral whose queries grow
// with their position, in steps of the length that the model was first trained with. The
// formula is that of Llama 4.
type ministral3 struct {
	decoder
	Window int
	Beta   float64
	Step   int
}

// ministralRoPE is the default of rope_parameters.
const ministralRoPE = `{"rope_type": "yarn", "rope_theta": 1000000, "factor": 16, "original_max_position_embeddings": 16384,
	"beta_fast": 32, "beta_slow": 1, "mscale_all_dim": 1, "mscale": 1, "llama_4_scaling_beta": 0.1}`

func readMinistral3(c *Config, f *Fields) Family {
	if !f.Has("rope_parameters") {
		f.values["rope_parameters"] = []byte(ministralRoPE)
	}
	key := f.ropeKey()
	m := &ministral3{decoder: f.decoder(c)}
	if !f.Has("rms_norm_eps") {
		m.NormEps = 1e-5
	}
	if !f.Has("head_dim") {
		m.HeadDim = 128
	}
	if _, given := f.values["pad_token_id"]; !given {
		c.Padding = 11
	}
	m.RoPE = f.rope(c, m.HeadDim, 1e6)
	m.Window = f.slidingWindow(&m.decoder, 0)
	s := f.Object(key)
	m.Beta, m.Step = s.Float("llama_4_scaling_beta", math.NaN()), s.Int("original_max_position_embeddings", 0)
	if s.err == nil && (math.IsNaN(m.Beta) || m.Step < 1) {
		f.Fail(key, string(f.values[key]), "llama_4_scaling_beta and original_max_position_embeddings of 1 or more")
	}
	return m
}

// Check implements Family.
func (m *ministral3) Check(c *Config) error {
	const longest = 1 << 24 // because of the table of scales
	if n := c.MaxLength(); n > longest {
		return fmt.Errorf("%w: max_position_embeddings: found %d positions, expected %d at most", ErrConfig, n, longest)
	}
	return m.decoder.Check(c)
}

// Build implements Family.
func (m *ministral3) Build(c *Config, b *nn.Builder) Outputs {
	l := m.language(c, b)
	x := l.embed()
	rope, scales := m.RoPE.table(b, "", l.Positions), m.queryScales(c, b, l.Positions)
	x = l.layers(x, func(b *nn.Builder, _ int, x graph.Tensor) graph.Tensor {
		h := b.RMSNorm("input_layernorm", x, m.NormEps)
		a := b.Sub("self_attn")
		q, k, v := m.project(a, h, false)
		q, k = q.RoPE(rope, m.HeadDim).Mul(scales), k.RoPE(rope, m.HeadDim)
		h = l.attention(a, q, k, v, m.scores(m.Window))
		x = a.Linear("o_proj", h, c.HiddenSize, false).Add(x)
		h = b.RMSNorm("post_attention_layernorm", x, m.NormEps)
		return m.gatedMLP(b.Sub("mlp"), h, false).Add(x)
	})
	return l.outputs(l.body.RMSNorm("norm", x, m.NormEps))
}

// queryScales returns 1 + β ln(1 + ⌊position/step⌋) for each token, [tokens, 1].
func (m *ministral3) queryScales(c *Config, b *nn.Builder, positions graph.Tensor) graph.Tensor {
	n := c.MaxLength()
	scales := b.Derived(nn.Derived{Name: "query.scales", Shape: []int{n, 1}, Values: func(int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(1 + m.Beta*math.Log1p(float64(i/m.Step)))
		}
		return x
	}})
	return scales.Gather(positions)
}
