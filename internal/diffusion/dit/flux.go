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
		Class: "FluxTransformer2DModel", Read: readFlux, Targets: projections,
		Marks:    []string{"single_transformer_blocks.0.proj_mlp.weight", "time_text_embed.text_embedder.linear_1.weight"},
		Original: []string{"double_blocks.0.img_attn.qkv.weight", "vector_in.in_layer.weight"},
		Config: func(s Shapes) map[string]any {
			head := s.Dim("transformer_blocks.0.attn.norm_q.weight", 0)
			return map[string]any{
				"num_layers":            s.Count("transformer_blocks.%d.attn.norm_q.weight"),
				"num_single_layers":     s.Count("single_transformer_blocks.%d.attn.norm_q.weight"),
				"attention_head_dim":    head,
				"num_attention_heads":   s.Ratio("attention_head_dim", s.Dim("x_embedder.weight", 0), head),
				"in_channels":           s.Dim("x_embedder.weight", 1),
				"out_channels":          s.Dim("proj_out.weight", 0),
				"joint_attention_dim":   s.Dim("context_embedder.weight", 1),
				"pooled_projection_dim": s.Dim("time_text_embed.text_embedder.linear_1.weight", 1),
				"guidance_embeds":       s.Has("time_text_embed.guidance_embedder.linear_1.weight"),
				"axes_dims_rope":        s.Axes("axes_dims_rope", head, 16, 56, 56),
			}
		},
	})
}

// Flux is FLUX.1 (Black Forest Labs 2024): dev, schnell and Kontext. It has double-stream
// blocks, then single-stream blocks with parallel attention and feed-forward. Like the
// trained model, it attends to all text tokens including padding, whatever the mask.
type Flux struct {
	Layers, SingleLayers int
	Heads, HeadDim       int
	Channels             int // of a token
	Text, Pooled         int // features
	Guidance             bool
	Axes                 []int // of the rotary embedding
}

func readFlux(_ *model.Config, f *model.Fields) model.Family {
	m := &Flux{
		Layers: f.Int("num_layers", 19), SingleLayers: f.Int("num_single_layers", 38),
		Heads: f.Int("num_attention_heads", 24), HeadDim: f.Int("attention_head_dim", 128),
		Channels: f.Int("in_channels", 64),
		Text:     f.Int("joint_attention_dim", 4096), Pooled: f.Int("pooled_projection_dim", 768),
		Guidance: f.Bool("guidance_embeds", false),
		Axes:     f.Ints("axes_dims_rope", 16, 56, 56),
	}
	side := f.Int("patch_size", 1)
	if out := side * side * f.Int("out_channels", m.Channels); out != m.Channels {
		f.Unsupported("in_channels", m.Channels, []string{fmt.Sprintf("%d, the channels of a token that come out", out)})
	}
	return m
}

// Check implements model.Family.
func (m *Flux) Check(*model.Config) error {
	err := checkTransformer(m.Layers, m.Heads, m.HeadDim, m.Channels, m.Text, m.Axes)
	if err != nil {
		return err
	}
	if err = checkLayers("num_single_layers", m.SingleLayers); err != nil {
		return err
	}
	return model.CheckSizes(model.Size{Key: "pooled_projection_dim", N: m.Pooled})
}

// Build implements model.Family.
func (m *Flux) Build(_ *model.Config, b *nn.Builder) model.Outputs {
	j, size := newJoint(b, m.Heads, m.HeadDim), m.Heads*m.HeadDim
	image := b.Linear("x_embedder", b.Input(Latents, tensor.F32, j.image.rows(), ir.Static(m.Channels)), size, true)
	text := b.Linear("context_embedder", b.Input(Text, tensor.F32, j.text.rows(), ir.Static(m.Text)), size, true)
	c := m.conditions(b.Sub("time_text_embed"), j, size)
	for i := range m.Layers {
		text, image = m.double(b.Sub("transformer_blocks.%d", i), j, text, image, c)
	}
	if m.SingleLayers > 0 {
		x := j.join(text, image)
		for i := range m.SingleLayers {
			x = m.single(b.Sub("single_transformer_blocks.%d", i), j, x, c)
		}
		_, image = j.apart(x)
	}
	out := newStream(b, PredictedTokens)
	image = image.Gather(b.Input(Predicted, tensor.I32, out.rows()))
	return outputs(b, b.Linear("proj_out", normOut(b.Sub("norm_out"), out, image, c, normEps), m.Channels, true))
}

// conditions returns SiLU of the vector that modulates all blocks, [samples, size]. The
// vector is the sum of the embeddings of timestep, guidance and pooled prompt.
func (m *Flux) conditions(b *nn.Builder, j joint, size int) graph.Tensor {
	n, channels := ir.Static(j.samples), ir.Static(timeChannels)
	c := mlp(b.Sub("timestep_embedder"), b.Input(Time, tensor.F32, n, channels), size, true)
	if m.Guidance {
		c = c.Add(mlp(b.Sub("guidance_embedder"), b.Input(Guidance, tensor.F32, n, channels), size, true))
	}
	c = c.Add(mlp(b.Sub("text_embedder"), b.Input(Pooled, tensor.F32, n, ir.Static(m.Pooled)), size, true))
	if !c.Valid() {
		return c
	}
	return c.Activate(ir.SiLU)
}

// double builds a double-stream block.
func (m *Flux) double(b *nn.Builder, j joint, text, image, c graph.Tensor) (textOut, imageOut graph.Tensor) {
	size := m.Heads * m.HeadDim
	b.EndSegments() // modulations are small: they are kept, not recomputed
	mi := chunks(b.Linear("norm1.linear", c, 6*size, true), 6)
	mt := chunks(b.Linear("norm1_context.linear", c, 6*size, true), 6)
	b.Segment()
	attended, seen := j.attention(b.Sub("attn"), j.text.modulated(text, mt[0], mt[1], normEps), j.image.modulated(image, mi[0], mi[1], normEps), normEps)
	text, image = j.text.added(text, attended, mt[2]), j.image.added(image, seen, mi[2])
	inner := feedForward(b.Sub("ff"), j.image.modulated(image, mi[3], mi[4], normEps), size)
	image = j.image.added(image, inner, mi[5])
	inner = feedForward(b.Sub("ff_context"), j.text.modulated(text, mt[3], mt[4], normEps), size)
	text = j.text.added(text, inner, mt[5])
	b.EndSegments()
	return text, image
}

// single builds a single-stream block.
func (m *Flux) single(b *nn.Builder, j joint, x, c graph.Tensor) graph.Tensor {
	size := m.Heads * m.HeadDim
	b.EndSegments()
	ms := chunks(b.Linear("norm.linear", c, 3*size, true), 3)
	b.Segment()
	h := j.modulated(x, ms[0], ms[1], normEps)
	a := b.Sub("attn")
	q, k := j.normed(a, "to_q", "norm_q", h, normEps), j.normed(a, "to_k", "norm_k", h, normEps)
	o := j.attend(q, k, a.Linear("to_v", h, size, true))
	inner := b.Linear("proj_mlp", h, 4*size, true).Activate(ir.GELUTanh)
	x = j.added(x, b.Linear("proj_out", graph.Concat(1, o, inner), size, true), ms[2])
	b.EndSegments()
	return x
}

// Space implements Transformer.
func (m *Flux) Space() Space {
	return Space{Channels: m.Channels / (patch * patch), Multiple: patch, Text: m.Text, Pooled: m.Pooled, Guidance: m.Guidance, Controls: true}
}

// Bounds implements Transformer.
func (m *Flux) Bounds(samples int, s Sample) map[string]int {
	return squares.layout(samples, s).bounds()
}

// Arrays implements Transformer.
func (m *Flux) Arrays(b *data.Batch, samples []Sample) error {
	l, err := m.Space().newLayout(squares, samples)
	if err == nil {
		err = oneFrame(samples)
	}
	if err != nil {
		return err
	}
	b.Reset()
	l.setPictures(b, samples, squares.pack)
	l.setText(b, samples, func(Prompt, int) bool { return true })
	l.setPooled(b, samples)
	setSinusoids(b, Time, samples, func(s Sample) []float32 { return sinusoid(s.Timestep/1000*1000, 1, timeChannels) })
	if m.Guidance {
		setSinusoids(b, Guidance, samples, func(s Sample) []float32 { return sinusoid(s.Guidance*1000, 1, timeChannels) })
	}
	ids := l.pictureIDs()
	none := func(_ int, position []int) { clear(position) }
	l.setRotary(b, rotary{10000, m.Axes, angles64}, none, func(i int, position []int) { copy(position, ids[i][:]) })
	return nil
}

// pictureIDs returns the positions of image tokens: 0, or 1 for controls, then the row and
// the column.
func (l layout) pictureIDs() [][3]int {
	ids := make([][3]int, l.image())
	l.eachToken(func(i, picture, _, row, column int) { ids[i] = [3]int{min(picture, 1), row, column} })
	return ids
}

// Unpack implements Transformer.
func (m *Flux) Unpack(rows []float32, samples int, like Latent) ([][]float32, error) {
	return squares.unpackAll(rows, samples, like)
}

var _ Transformer = (*Flux)(nil)
