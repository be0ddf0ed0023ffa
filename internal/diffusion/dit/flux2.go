package dit

import (
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

func init() {
	register(Family{
		Class: "Flux2Transformer2DModel", Read: readFlux2,
		Targets:  append(slices.Clip(projections), "to_qkv_mlp_proj", "attn.to_out"),
		Marks:    []string{"double_stream_modulation_img.linear.weight"},
		Original: []string{"double_stream_modulation_img.lin.weight"},
		Config: func(s Shapes) map[string]any {
			head, width := s.Dim("single_transformer_blocks.0.attn.norm_q.weight", 0), s.Dim("x_embedder.weight", 0)
			return map[string]any{
				"num_layers":                 s.Count("transformer_blocks.%d.attn.norm_q.weight"),
				"num_single_layers":          s.Count("single_transformer_blocks.%d.attn.norm_q.weight"),
				"attention_head_dim":         head,
				"num_attention_heads":        s.Ratio("attention_head_dim", width, head),
				"in_channels":                s.Dim("x_embedder.weight", 1),
				"out_channels":               s.Dim("proj_out.weight", 0),
				"joint_attention_dim":        s.Dim("context_embedder.weight", 1),
				"timestep_guidance_channels": s.Dim("time_guidance_embed.timestep_embedder.linear_1.weight", 1),
				"mlp_ratio":                  float64(s.Dim("single_transformer_blocks.0.attn.to_out.weight", 1)-width) / float64(width),
				"guidance_embeds":            s.Has("time_guidance_embed.guidance_embedder.linear_1.weight"),
				"axes_dims_rope":             s.Axes("axes_dims_rope", head, 32, 32, 32, 32),
			}
		},
	})
}

// Flux2 is FLUX.2 (Black Forest Labs 2025): dev and klein. Unlike FLUX.1 it has no biases,
// shares one modulation among all blocks of a kind, and has gated feed-forward layers. Its
// autoencoder folds 2×2 positions into channels, so one latent position is a token. Like the
// trained model, it attends to all text tokens including padding, whatever the mask.
type Flux2 struct {
	Layers, SingleLayers int
	Heads, HeadDim       int
	Channels, Text       int
	TimeChannels         int // of the sinusoids
	MLPRatio             float64
	Eps                  float32
	Guidance             bool
	Theta                float64
	Axes                 []int // of the rotary embedding
}

func readFlux2(_ *model.Config, f *model.Fields) model.Family {
	m := &Flux2{
		Layers: f.Int("num_layers", 8), SingleLayers: f.Int("num_single_layers", 48),
		Heads: f.Int("num_attention_heads", 48), HeadDim: f.Int("attention_head_dim", 128),
		Channels: f.Int("in_channels", 128), Text: f.Int("joint_attention_dim", 15360),
		TimeChannels: f.Int("timestep_guidance_channels", timeChannels),
		MLPRatio:     f.Float("mlp_ratio", 3),
		Eps:          float32(f.Float("eps", normEps)),
		Guidance:     f.Bool("guidance_embeds", true),
		Theta:        f.Float("rope_theta", 2000),
		Axes:         f.Ints("axes_dims_rope", 32, 32, 32, 32),
	}
	side := f.Int("patch_size", 1)
	if out := side * side * f.Int("out_channels", m.Channels); out != m.Channels {
		f.Unsupported("in_channels", m.Channels, []string{fmt.Sprintf("%d, the channels of a token that come out", out)})
	}
	return m
}

// Check implements [model.Family].
func (m *Flux2) Check(*model.Config) error {
	err := checkLayers("num_layers", m.Layers)
	if err == nil {
		err = checkLayers("num_single_layers", m.SingleLayers)
	}
	switch {
	case err != nil:
		return err
	case !(m.MLPRatio > 0 && m.MLPRatio <= maxRatio):
		return fmt.Errorf("%w: mlp_ratio: found %v, expected more than 0, to %v", model.ErrConfig, m.MLPRatio, maxRatio)
	case m.TimeChannels%2 != 0:
		return fmt.Errorf("%w: timestep_guidance_channels: found %d, expected an even number", model.ErrConfig, m.TimeChannels)
	}
	err = checkSize("num_attention_heads", m.Heads, "attention_head_dim", m.HeadDim)
	if err != nil {
		return err
	}
	err = model.CheckSizes(
		model.Size{Key: "in_channels", N: m.Channels}, model.Size{Key: "joint_attention_dim", N: m.Text}, model.Size{Key: "timestep_guidance_channels", N: m.TimeChannels},
		model.Size{Key: "mlp_ratio times the width", N: m.units()},
	)
	if err != nil {
		return err
	}
	return checkRotary("axes_dims_rope", m.Axes, 4, "attention_head_dim", m.HeadDim)
}

// size returns the width of the streams, units the width of the feed-forward layers.
func (m *Flux2) size() int  { return m.Heads * m.HeadDim }
func (m *Flux2) units() int { return int(float64(m.size()) * m.MLPRatio) }

// Build implements [model.Family].
func (m *Flux2) Build(_ *model.Config, b *nn.Builder) model.Outputs {
	j, size := newJoint(b, m.Heads, m.HeadDim), m.size()
	image := b.Linear("x_embedder", b.Input(Latents, tensor.F32, j.image.rows(), ir.Static(m.Channels)), size, false)
	text := b.Linear("context_embedder", b.Input(Text, tensor.F32, j.text.rows(), ir.Static(m.Text)), size, false)
	c := m.conditions(b.Sub("time_guidance_embed"), j.samples)
	modulation := func(name string, n int) []graph.Tensor {
		return chunks(b.Linear(name+".linear", c, n*size, false), n)
	}
	mt, mi := modulation("double_stream_modulation_txt", 6), modulation("double_stream_modulation_img", 6)
	for i := range m.Layers {
		text, image = m.double(b.Sub("transformer_blocks.%d", i), j, text, image, mt, mi)
	}
	if ms := modulation("single_stream_modulation", 3); m.SingleLayers > 0 {
		x := j.join(text, image)
		for i := range m.SingleLayers {
			x = m.single(b.Sub("single_transformer_blocks.%d", i), j, x, ms)
		}
		_, image = j.apart(x)
	}
	out := newStream(b, PredictedTokens)
	image = image.Gather(b.Input(Predicted, tensor.I32, out.rows()))
	e := modulation("norm_out", 2) // scale, shift
	return outputs(b, b.Linear("proj_out", out.modulated(image, e[1], e[0], m.Eps), m.Channels, false))
}

// conditions returns SiLU of the conditioning vector that modulates all blocks, [samples,
// size].
func (m *Flux2) conditions(b *nn.Builder, samples int) graph.Tensor {
	embedded := func(name, input string) graph.Tensor {
		return mlp(b.Sub("%s", name), b.Input(input, tensor.F32, ir.Static(samples), ir.Static(m.TimeChannels)), m.size(), false)
	}
	c := embedded("timestep_embedder", Time)
	if m.Guidance {
		c = c.Add(embedded("guidance_embedder", Guidance))
	}
	return c.Activate(ir.SiLU)
}

// double builds a double-stream block, modulated by mt and mi.
func (m *Flux2) double(b *nn.Builder, j joint, text, image graph.Tensor, mt, mi []graph.Tensor) (textOut, imageOut graph.Tensor) {
	b.Segment()
	defer b.EndSegments()
	toText, toImage := m.attention(b.Sub("attn"), j, j.text.modulated(text, mt[0], mt[1], m.Eps), j.image.modulated(image, mi[0], mi[1], m.Eps))
	text, image = j.text.added(text, toText, mt[2]), j.image.added(image, toImage, mi[2])
	inner := m.feedForward(b.Sub("ff"), j.image.modulated(image, mi[3], mi[4], m.Eps))
	image = j.image.added(image, inner, mi[5])
	inner = m.feedForward(b.Sub("ff_context"), j.text.modulated(text, mt[3], mt[4], m.Eps))
	return j.text.added(text, inner, mt[5]), image
}

// attention builds the joint attention of two streams, each with its own weights.
func (m *Flux2) attention(b *nn.Builder, j joint, text, image graph.Tensor) (textOut, imageOut graph.Tensor) {
	normed := func(name, norm string, x graph.Tensor) graph.Tensor {
		return m.normed(b, norm, b.Linear(name, x, m.size(), false))
	}
	q := j.join(normed("add_q_proj", "norm_added_q", text), normed("to_q", "norm_q", image))
	k := j.join(normed("add_k_proj", "norm_added_k", text), normed("to_k", "norm_k", image))
	v := j.join(b.Linear("add_v_proj", text, m.size(), false), b.Linear("to_v", image, m.size(), false))
	text, image = j.apart(j.attend(q, k, v))
	return b.Linear("to_add_out", text, m.size(), false), b.Linear("to_out.0", image, m.size(), false)
}

// normed normalizes each head of x.
func (m *Flux2) normed(b *nn.Builder, norm string, x graph.Tensor) graph.Tensor {
	return nn.PerHead(x, m.HeadDim, func(x graph.Tensor) graph.Tensor { return b.RMSNorm(norm, x, m.Eps) })
}

// feedForward returns linear_out(SiLU(gate)·up). linear_in computes gate and up.
func (m *Flux2) feedForward(b *nn.Builder, x graph.Tensor) graph.Tensor {
	h := chunks(b.Linear("linear_in", x, 2*m.units(), false), 2)
	return b.Linear("linear_out", h[0].GLU(h[1], ir.SiLU), m.size(), false)
}

// single builds a single-stream block. One layer computes queries, keys, values and the
// feed-forward inputs; another projects the outputs of both.
func (m *Flux2) single(b *nn.Builder, j joint, x graph.Tensor, ms []graph.Tensor) graph.Tensor {
	b.Segment()
	defer b.EndSegments()
	a, size, units := b.Sub("attn"), m.size(), m.units()
	all := a.Linear("to_qkv_mlp_proj", j.modulated(x, ms[0], ms[1], m.Eps), 3*size+2*units, false)
	var parts [5]graph.Tensor // queries, keys, values, gate, up
	at := 0
	for i, n := range [...]int{size, size, size, units, units} {
		parts[i] = all.Slice(1, at, at+n)
		at += n
	}
	y := j.attend(m.normed(a, "norm_q", parts[0]), m.normed(a, "norm_k", parts[1]), parts[2])
	y = graph.Concat(1, y, parts[3].GLU(parts[4], ir.SiLU))
	return j.added(x, a.Linear("to_out", y, size, false), ms[2])
}

// Space implements [Transformer].
func (m *Flux2) Space() Space {
	return Space{Channels: m.Channels, Multiple: 1, Text: m.Text, Guidance: m.Guidance, Controls: true}
}

// Bounds implements [Transformer].
func (m *Flux2) Bounds(samples int, s Sample) map[string]int {
	return places.layout(samples, s).bounds()
}

// Arrays implements [Transformer].
func (m *Flux2) Arrays(b *data.Batch, samples []Sample) error {
	l, err := m.Space().newLayout(places, samples)
	if err == nil {
		err = oneFrame(samples)
	}
	if err != nil {
		return err
	}
	b.Reset()
	l.setPictures(b, samples, places.pack)
	l.setText(b, samples, func(Prompt, int) bool { return true })
	setSinusoids(b, Time, samples, func(s Sample) []float32 { return sinusoid(s.Timestep/1000*1000, 1, m.TimeChannels) })
	if m.Guidance {
		setSinusoids(b, Guidance, samples, func(s Sample) []float32 { return sinusoid(s.Guidance*1000, 1, m.TimeChannels) })
	}
	pictures := m.positions(l)
	text := func(i int, at []int) { copy(at, []int{0, 0, 0, i}) }
	l.setRotary(b, rotary{m.Theta, m.Axes, angles64}, text, func(i int, at []int) { copy(at, pictures[i][:]) })
	return nil
}

// positions returns the positions of image tokens: 0, or 10, 20 … for controls, then the row,
// the column and 0. Text tokens use the fourth axis.
func (m *Flux2) positions(l layout) [][4]int {
	at := make([][4]int, l.image())
	l.eachToken(func(i, picture, _, row, column int) { at[i] = [4]int{10 * picture, row, column, 0} })
	return at
}

// Unpack implements [Transformer].
func (m *Flux2) Unpack(rows []float32, samples int, like Latent) ([][]float32, error) {
	return places.unpackAll(rows, samples, like)
}

var _ Transformer = (*Flux2)(nil)
