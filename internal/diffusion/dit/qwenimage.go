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
	model.Register("QwenImageTransformer2DModel", model.Architecture{Read: readQwenImage})
}

// QwenImage is Qwen-Image (Wu et al. 2025, arXiv 2508.02324), including its edit and layered
// transformers. It has double-stream blocks.
type QwenImage struct {
	Layers         int
	Heads, HeadDim int
	Channels       int   // of a token
	Text           int   // features
	Axes           []int // of the rotary embedding
	// ClearControls modulates controls as at timestep 0 (zero_cond_t).
	ClearControls bool
	// Layered makes the frames of a latent the layers of an image (use_layer3d_rope). Kinds
	// adds an embedding of the kind of image, of which the first is used
	// (use_additional_t_cond).
	Layered, Kinds bool
}

func readQwenImage(_ *model.Config, f *model.Fields) model.Family {
	m := &QwenImage{
		Layers: f.Int("num_layers", 60),
		Heads:  f.Int("num_attention_heads", 24), HeadDim: f.Int("attention_head_dim", 128),
		Channels: f.Int("in_channels", 64), Text: f.Int("joint_attention_dim", 3584),
		Axes:          f.Ints("axes_dims_rope", 16, 56, 56),
		ClearControls: f.Bool("zero_cond_t", false),
		Layered:       f.Bool("use_layer3d_rope", false), Kinds: f.Bool("use_additional_t_cond", false),
	}
	if f.Bool("guidance_embeds", false) {
		f.Unsupported("guidance_embeds", true, []string{"false"})
	}
	channels := 16
	if f.Null("out_channels") {
		channels = m.Channels
	}
	side := f.Int("patch_size", 2)
	if out := side * side * f.Int("out_channels", channels); out != m.Channels {
		f.Unsupported("in_channels", m.Channels, []string{fmt.Sprintf("%d, the channels of a token that come out", out)})
	}
	return m
}

// Check implements model.Family.
func (m *QwenImage) Check(*model.Config) error {
	return checkTransformer(m.Layers, m.Heads, m.HeadDim, m.Channels, m.Text, m.Axes)
}

// Build implements model.Family.
func (m *QwenImage) Build(_ *model.Config, b *nn.Builder) model.Outputs {
	j, size := newJoint(b, m.Heads, m.HeadDim), m.Heads*m.HeadDim
	image := b.Linear("img_in", b.Input(Latents, tensor.F32, j.image.rows(), ir.Static(m.Channels)), size, true)
	text := b.RMSNorm("txt_norm", b.Input(Text, tensor.F32, j.text.rows(), ir.Static(m.Text)), normEps)
	text = b.Linear("txt_in", text, size, true)
	c := m.conditions(b, j, size)
	for i := range m.Layers {
		text, image = m.block(b.Sub("transformer_blocks.%d", i), j, text, image, c)
	}
	out := newStream(b, PredictedTokens)
	image = image.Gather(b.Input(Predicted, tensor.I32, out.rows()))
	return outputs(b, b.Linear("proj_out", normOut(b.Sub("norm_out"), out, image, c.samples, normEps), m.Channels, true))
}

// conditions holds SiLU of the conditioning vectors that modulate blocks.
type conditions struct {
	samples graph.Tensor // [samples, size]
	all     graph.Tensor // the same; with ClearControls followed by the vector of timestep 0
	of      graph.Tensor // i32 [image tokens]: the row of all for each token; absent: that of its sample
}

// conditions returns the embeddings of the timestep.
func (m *QwenImage) conditions(b *nn.Builder, j joint, size int) (c conditions) {
	n, channels := ir.Static(j.samples), ir.Static(timeChannels)
	x := b.Input(Time, tensor.F32, n, channels)
	if m.ClearControls {
		half := ir.Static(timeChannels / 2)
		still := graph.Concat(1, b.G.Const(1, ir.Static(1), half), b.G.Const(0, ir.Static(1), half)) // cosines and sines of 0
		x = graph.Concat(0, x, still)
		c.of = b.Input(ConditionRows, tensor.I32, j.image.rows())
	}
	e := b.Sub("time_text_embed")
	x = mlp(e.Sub("timestep_embedder"), x, size, true)
	if m.Kinds {
		first := b.G.Of(b.G.IR().Const(0, ir.Type{DType: tensor.I32, Shape: ir.ShapeOf(1)}))
		x = x.Add(e.Embedding(nn.Attributes, "addition_t_embedding", first, 2, size, -1))
	}
	if !x.Valid() {
		return conditions{samples: x, all: x, of: c.of}
	}
	c.all = x.Activate(ir.SiLU)
	if c.samples = c.all; m.ClearControls {
		c.samples = c.all.Slice(0, 0, j.samples)
	}
	return c
}

// block builds a double-stream block.
func (m *QwenImage) block(b *nn.Builder, j joint, text, image graph.Tensor, c conditions) (textOut, imageOut graph.Tensor) {
	size := m.Heads * m.HeadDim
	b.EndSegments() // modulations are small: they are kept, not recomputed
	mi := chunks(b.Linear("img_mod.1", c.all, 6*size, true), 6)
	mt := chunks(b.Linear("txt_mod.1", c.samples, 6*size, true), 6)
	b.Segment()
	if c.of.Valid() { // per token, as large as the stream
		for i := range mi {
			mi[i] = mi[i].Gather(c.of)
		}
	}
	attended, seen := j.attention(b.Sub("attn"), j.text.modulated(text, mt[0], mt[1], normEps), j.image.modulated(image, mi[0], mi[1], normEps), normEps)
	text, image = j.text.added(text, attended, mt[2]), j.image.added(image, seen, mi[2])
	inner := feedForward(b.Sub("img_mlp"), j.image.modulated(image, mi[3], mi[4], normEps), size)
	image = j.image.added(image, inner, mi[5])
	inner = feedForward(b.Sub("txt_mlp"), j.text.modulated(text, mt[3], mt[4], normEps), size)
	text = j.text.added(text, inner, mt[5])
	b.EndSegments()
	return text, image
}
