package dit

import (
	"fmt"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

func init() {
	register(Family{
		Class: "QwenImageTransformer2DModel", Read: readQwenImage, Targets: projections,
		Marks: []string{"txt_norm.weight", "transformer_blocks.0.img_mod.1.weight"},
		Config: func(s Shapes) map[string]any {
			head := s.Dim("transformer_blocks.0.attn.norm_q.weight", 0)
			layered := s.Has("time_text_embed.addition_t_embedding.weight")
			return map[string]any{
				"num_layers":            s.Count("transformer_blocks.%d.attn.norm_q.weight"),
				"attention_head_dim":    head,
				"num_attention_heads":   s.Ratio("attention_head_dim", s.Dim("img_in.weight", 0), head),
				"in_channels":           s.Dim("img_in.weight", 1),
				"out_channels":          s.Ratio("patch_size", s.Dim("proj_out.weight", 0), patch*patch),
				"joint_attention_dim":   s.Dim("txt_in.weight", 1),
				"zero_cond_t":           s.Has("__index_timestep_zero__"), // a marker of ComfyUI
				"use_additional_t_cond": layered,
				"use_layer3d_rope":      layered,
				"axes_dims_rope":        s.Axes("axes_dims_rope", head, 16, 56, 56),
			}
		},
	})
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
		x = withStill(x, timeChannels)
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

// ConditionRows is an input of Qwen-Image with controls that are modulated as at timestep 0:
// i32 [samples·image tokens]. It holds the index of the sample, or the number of samples for
// tokens of controls.
const ConditionRows = "condition rows"

// Space implements Transformer.
func (m *QwenImage) Space() Space {
	return Space{Channels: m.Channels / (patch * patch), Multiple: patch, Text: m.Text, Controls: true}
}

// Bounds implements Transformer.
func (m *QwenImage) Bounds(samples int, s Sample) map[string]int {
	return squares.layout(samples, s).bounds()
}

// Arrays implements Transformer.
func (m *QwenImage) Arrays(b *data.Batch, samples []Sample) error {
	l, err := m.Space().newLayout(squares, samples)
	if err == nil && !m.Layered {
		err = oneFrame(samples)
	}
	if err != nil {
		return err
	}
	b.Reset()
	l.setPictures(b, samples, squares.pack)
	l.setText(b, samples, Prompt.sees)
	setSinusoids(b, Time, samples, func(s Sample) []float32 { return sinusoid(s.Timestep/1000, 1000, timeChannels) })
	if m.ClearControls {
		b.SetInts(ConditionRows, m.conditionRows(l))
	}
	positions, first := m.positions(l)
	text := func(i int, position []int) {
		for axis := range position {
			position[axis] = first + i
		}
	}
	l.setRotary(b, rotary{10000, m.Axes, angles32}, text, func(i int, position []int) { copy(position, positions[i][:]) })
	return nil
}

// positions returns the positions of image tokens, with centered rows and columns, and the
// position of the first text token on all axes. Text follows the largest image position. The
// first axis numbers images; each frame of a layered image counts as one, and the last image
// then has -1.
func (m *QwenImage) positions(l layout) (all [][3]int, first int) {
	pictures := 0 // each frame is an image if images are layered
	for _, g := range l.grids {
		first = max(first, g.height/2, g.width/2)
		pictures += g.frames
	}
	all = make([][3]int, l.image())
	l.eachToken(func(i, picture, frame, row, column int) {
		g := l.grids[picture]
		at := picture + frame
		if m.Layered {
			for _, before := range l.grids[:picture] {
				at += before.frames - 1
			}
			if at == pictures-1 {
				at = -1
			}
		}
		all[i] = [3]int{at, row - (g.height - g.height/2), column - (g.width - g.width/2)}
	})
	if m.Layered {
		first = max(first, pictures-1)
	}
	return all, first
}

// conditionRows returns the values of ConditionRows. If the image is layered, all layers
// except the first count as controls, as in diffusers.
func (m *QwenImage) conditionRows(l layout) []int32 {
	one := l.grids[0].height * l.grids[0].width
	rows := make([]int32, 0, l.samples*l.image())
	for i := range l.samples {
		for t := range l.image() {
			if t < one {
				rows = append(rows, int32(i))
			} else {
				rows = append(rows, int32(l.samples))
			}
		}
	}
	return rows
}

// Unpack implements Transformer.
func (m *QwenImage) Unpack(rows []float32, samples int, like Latent) ([][]float32, error) {
	return squares.unpackAll(rows, samples, like)
}

var _ Transformer = (*QwenImage)(nil)
