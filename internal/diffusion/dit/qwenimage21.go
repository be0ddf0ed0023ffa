package dit

import (
	"fmt"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

func init() {
	register(Family{
		Class: "QwenImage21Transformer2DModel", Read: readQwenImage21, Targets: projections,
		Marks:    []string{"txt_in.text_norm.weight", "transformer_blocks.0.img_mlp.gate_layer.weight"},
		Original: []string{"txt_in.text_norm.weight", "transformer_blocks.0.img_mlp.gate_up.weight"},
		Config: func(s Shapes) map[string]any {
			head, width := s.Dim("transformer_blocks.0.attn.norm_q.weight", 0), s.Dim("img_in.weight", 0)
			return map[string]any{
				"num_layers":          s.Count("transformer_blocks.%d.attn.norm_q.weight"),
				"attention_head_dim":  head,
				"num_attention_heads": s.Ratio("attention_head_dim", width, head),
				"in_channels":         s.Dim("img_in.weight", 1),
				"out_channels":        s.Dim("proj_out.weight", 0),
				"context_in_dim":      s.Dim("txt_in.text_norm.weight", 0),
				"mlp_ratio":           s.Ratio("mlp_ratio", s.Dim("transformer_blocks.0.img_mlp.out.weight", 1), width),
				"axes_dims_rope":      s.Axes("axes_dims_rope", head, 16, 56, 56),
			}
		},
	})
}

// QwenImage21 is Qwen-Image 2.1 (Qwen team 2026). It has a single stream: text tokens,
// control tokens at [Prompt.Slots], then image tokens. Attention is causal, except that all
// tokens of an image attend to each other.
type QwenImage21 struct {
	Layers         int
	Heads, HeadDim int
	Channels, Text int
	MLPRatio       int
	Eps            float32
	Axes           []int // of the rotary embedding
	// ClearPrefix modulates the text and the controls as at timestep 0 (causal_condition).
	ClearPrefix bool
}

func readQwenImage21(_ *model.Config, f *model.Fields) model.Family {
	m := &QwenImage21{
		Layers: f.Int("num_layers", 32),
		Heads:  f.Int("num_attention_heads", 32), HeadDim: f.Int("attention_head_dim", 128),
		Channels: f.Int("in_channels", 64), Text: f.Int("context_in_dim", 4096),
		MLPRatio:    f.Int("mlp_ratio", 3),
		Eps:         float32(f.Float("eps", normEps)),
		Axes:        f.Ints("axes_dims_rope", 16, 56, 56),
		ClearPrefix: f.Bool("causal_condition", true),
	}
	if side := f.Int("patch_size", 1); side != 1 {
		f.Unsupported("patch_size", side, []string{"1"})
	}
	if out := f.Int("out_channels", m.Channels); out != m.Channels {
		f.Unsupported("out_channels", out, []string{fmt.Sprintf("%d, the channels of a latent", m.Channels)})
	}
	return m
}

// Check implements [model.Family].
func (m *QwenImage21) Check(*model.Config) error {
	err := checkLayers("num_layers", m.Layers)
	if err == nil {
		err = checkSize("num_attention_heads", m.Heads, "attention_head_dim", m.HeadDim)
	}
	if err == nil {
		err = model.CheckSizes(
			model.Size{Key: "in_channels", N: m.Channels}, model.Size{Key: "context_in_dim", N: m.Text},
			model.Size{Key: "mlp_ratio", N: m.MLPRatio}, model.Size{Key: "mlp_ratio times the width", N: m.MLPRatio * m.size()},
		)
	}
	if err != nil {
		return err
	}
	return checkRotary("axes_dims_rope", m.Axes, 3, "attention_head_dim", m.HeadDim)
}

// size returns the width of the stream.
func (m *QwenImage21) size() int { return m.Heads * m.HeadDim }

// Build implements [model.Family].
func (m *QwenImage21) Build(_ *model.Config, b *nn.Builder) model.Outputs {
	j := newJoint(b, m.Heads, m.HeadDim)
	image := b.Linear("img_in", b.Input(Latents, tensor.F32, j.image.rows(), ir.Static(m.Channels)), m.size(), false)
	x := j.join(m.text(b.Sub("txt_in"), j), image)
	c, all := m.conditions(b, j.samples)
	mod := m.modulation(b, j, all)
	for i := range m.Layers {
		x = m.block(b.Sub("transformer_blocks.%d", i), j, x, mod)
	}
	out := newStream(b, PredictedTokens)
	x = x.Gather(j.imageRows).Gather(b.Input(Predicted, tensor.I32, out.rows()))
	x = out.modulated(x, graph.Tensor{}, b.Linear("norm_out.linear", c, m.size(), false), m.Eps)
	return outputs(b, b.Linear("proj_out", x, m.Channels, false))
}

// text returns the embedded text tokens. The weight of the norm is an offset from 1.
func (m *QwenImage21) text(b *nn.Builder, j joint) graph.Tensor {
	x := b.RMSNormFrom("text_norm", b.Input(Text, tensor.F32, j.text.rows(), ir.Static(m.Text)), m.Eps, 1)
	return b.Linear("out_layer", b.Linear("in_layer", x, m.size(), false).Activate(ir.GELUTanh), m.size(), false)
}

// conditions returns SiLU of the timestep embeddings, [samples, size], and the same with the
// embedding of timestep 0 appended if ClearPrefix is set.
func (m *QwenImage21) conditions(b *nn.Builder, samples int) (c, all graph.Tensor) {
	x := b.Input(Time, tensor.F32, ir.Static(samples), ir.Static(timeChannels))
	if m.ClearPrefix {
		x = withStill(x, timeChannels)
	}
	all = mlp(b.Sub("time_text_embed.timestep_embedder"), x, m.size(), false).Activate(ir.SiLU)
	if m.ClearPrefix {
		return all.Slice(0, 0, samples), all
	}
	return all, all
}

// modulation returns the factors 1 + scale and tanh(gate) of attention and then of
// feed-forward. All blocks share them. They are per sample, or per token if the tokens of a
// sample differ.
func (m *QwenImage21) modulation(b *nn.Builder, j joint, all graph.Tensor) []graph.Tensor {
	mod := chunks(b.Linear("modulation.1", all, 4*m.size(), false), 4)
	for i := range mod {
		if i%2 == 0 {
			mod[i] = mod[i].AddScalar(1)
		} else {
			mod[i] = mod[i].Apply(ir.Tanh)
		}
		if m.ClearPrefix {
			mod[i] = mod[i].Gather(b.Input(tokenConditions, tensor.I32, j.rows()))
		}
	}
	return mod
}

// tokenConditions is an input of Qwen-Image 2.1, i32 [samples·tokens]. It holds the index of
// the sample for tokens of the generated image, and the number of samples for all others.
const tokenConditions = "token conditions"

// block builds a block.
func (m *QwenImage21) block(b *nn.Builder, j joint, x graph.Tensor, mod []graph.Tensor) graph.Tensor {
	b.Segment()
	defer b.EndSegments()
	none := graph.Tensor{}
	h := j.scaled(x.LayerNorm(none, none, m.Eps), mod[0])
	x = j.added(x, m.attention(b.Sub("attn"), j, h), mod[1])
	h = j.scaled(x.LayerNorm(none, none, m.Eps), mod[2])
	return j.added(x, m.feedForward(b.Sub("img_mlp"), h), mod[3])
}

func (m *QwenImage21) attention(b *nn.Builder, j joint, x graph.Tensor) graph.Tensor {
	normed := func(name, norm string) graph.Tensor {
		h := b.Linear(name, x, m.size(), false)
		return nn.PerHead(h, m.HeadDim, func(h graph.Tensor) graph.Tensor { return b.RMSNorm(norm, h, m.Eps) })
	}
	q, k := normed("to_q", "norm_q"), normed("to_k", "norm_k")
	return b.Linear("to_out.0", j.attend(q, k, b.Linear("to_v", x, m.size(), false)), m.size(), false)
}

func (m *QwenImage21) feedForward(b *nn.Builder, x graph.Tensor) graph.Tensor {
	units := m.MLPRatio * m.size()
	up, gate := b.Linear("proj", x, units, false), b.Linear("gate_layer", x, units, false)
	return b.Linear("out", gate.GLU(up, ir.SiLU), m.size(), false)
}
