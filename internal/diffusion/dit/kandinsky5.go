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
		Class: "Kandinsky5Transformer3DModel", Read: readKandinsky5, Targets: []string{"to_query", "to_key", "to_value"},
		Marks: []string{"visual_embeddings.in_layer.weight", "time_embeddings.in_layer.weight"},
		Config: func(s Shapes) map[string]any {
			width := s.Dim("visual_embeddings.in_layer.weight", 0)
			in := s.Ratio("patch_size", s.Dim("visual_embeddings.in_layer.weight", 1), patch*patch)
			out := s.Ratio("patch_size", s.Dim("out_layer.out_layer.weight", 0), patch*patch)
			return map[string]any{
				"model_dim":         width,
				"time_dim":          s.Dim("time_embeddings.in_layer.weight", 0),
				"ff_dim":            s.Dim("visual_transformer_blocks.0.feed_forward.in_layer.weight", 0),
				"in_text_dim":       s.Dim("text_embeddings.in_layer.weight", 1),
				"in_text_dim2":      s.Dim("pooled_text_embeddings.in_layer.weight", 1),
				"in_visual_dim":     out,
				"out_visual_dim":    out,
				"visual_cond":       in == 2*out+1,
				"num_text_blocks":   s.Count("text_transformer_blocks.%d.self_attention.to_query.weight"),
				"num_visual_blocks": s.Count("visual_transformer_blocks.%d.self_attention.to_query.weight"),
				"axes_dims":         s.Axes("axes_dims", s.Dim("visual_transformer_blocks.0.self_attention.query_norm.weight", 0), 16, 24, 24),
			}
		},
	})
}

// Kandinsky5 is Kandinsky 5 (Arkhipkin et al. 2025, arXiv 2511.14993) for images and video.
// Text tokens pass their own blocks; image tokens attend to each other, then to the text.
// diffusers rounds queries and keys to bf16 when it applies rotary embeddings, even if they
// are f32. This implementation does not.
type Kandinsky5 struct {
	Channels           int
	Text, Pooled       int // features
	Width, TimeWidth   int
	Units              int // of the feed-forward layers
	TextLayers, Layers int
	Patch, Axes        []int // of a token, and of the rotary embedding: frames, rows, columns
	// Conditioned adds a second latent and a mask of its valid positions to the input
	// channels (visual_cond).
	Conditioned bool
}

const (
	kandinskyEps     = 1e-5
	kandinskyHeadEps = 1.1920929e-7 // epsilon of f32, PyTorch's default
)

func readKandinsky5(_ *model.Config, f *model.Fields) model.Family {
	m := &Kandinsky5{
		Channels: f.Int("in_visual_dim", 4),
		Text:     f.Int("in_text_dim", 3584), Pooled: f.Int("in_text_dim2", 768),
		Width: f.Int("model_dim", 2048), TimeWidth: f.Int("time_dim", 512), Units: f.Int("ff_dim", 5120),
		TextLayers: f.Int("num_text_blocks", 2), Layers: f.Int("num_visual_blocks", 32),
		Patch: f.Ints("patch_size", 1, 2, 2), Axes: f.Ints("axes_dims", 16, 24, 24),
		Conditioned: f.Bool("visual_cond", false),
	}
	if out := f.Int("out_visual_dim", 4); out != m.Channels {
		f.Unsupported("out_visual_dim", out, []string{fmt.Sprintf("%d, the channels of a latent", m.Channels)})
	}
	m.readAttention(f)
	return m
}

// readAttention reads the attention settings. The diffusers transformer attends to all tokens
// if attention_type is "regular"; the other keys configure sparse attention.
func (m *Kandinsky5) readAttention(f *model.Fields) {
	if t := f.String("attention_type", "regular"); t != "regular" {
		f.Unsupported("attention_type", t, []string{"regular"})
	}
	for _, key := range []string{"attention_causal", "attention_local", "attention_glob", "attention_add_sta"} {
		f.Bool(key, false)
	}
	for _, key := range []string{"attention_window", "attention_wT", "attention_wW", "attention_wH"} {
		f.Int(key, 0)
	}
	f.Float("attention_P", 0)
	f.String("attention_method", "")
}

// Check implements [model.Family].
func (m *Kandinsky5) Check(*model.Config) error {
	err := checkLayers("num_text_blocks", m.TextLayers)
	if err == nil {
		err = checkLayers("num_visual_blocks", m.Layers)
	}
	if err == nil {
		err = model.CheckSizes(
			model.Size{Key: "in_visual_dim", N: m.Channels}, model.Size{Key: "in_text_dim", N: m.Text}, model.Size{Key: "in_text_dim2", N: m.Pooled},
			model.Size{Key: "model_dim", N: m.Width}, model.Size{Key: "time_dim", N: m.TimeWidth}, model.Size{Key: "ff_dim", N: m.Units},
		)
	}
	if err == nil {
		err = checkRotary("axes_dims", m.Axes, 3, "a head", m.headDim())
	}
	switch {
	case err != nil:
		return err
	case len(m.Patch) != 3 || min(m.Patch[0], m.Patch[1], m.Patch[2]) < 1 || max(m.Patch[0], m.Patch[1], m.Patch[2]) > maxPatch:
		return fmt.Errorf("%w: patch_size: found %v, expected 3 numbers of 1 to %d", model.ErrConfig, m.Patch, maxPatch)
	case m.headDim() < 1 || m.Width%m.headDim() != 0 || m.Width%2 != 0:
		return fmt.Errorf("%w: model_dim: found %d, expected an even multiple of the sum of axes_dims, %d", model.ErrConfig, m.Width, m.headDim())
	}
	return nil
}

// headDim returns the size of a head.
func (m *Kandinsky5) headDim() int { return rotary{dims: m.Axes}.size() }

// token returns the number of values per token for the given channels.
func (m *Kandinsky5) token(channels int) int { return m.patches(true).size(channels) }

// given returns the number of input channels.
func (m *Kandinsky5) given() int {
	if m.Conditioned {
		return 2*m.Channels + 1
	}
	return m.Channels
}

// Inputs of Kandinsky, which keeps text and image streams apart: the rotary table of the
// text, and the bounds of the text keys of each image token.
const (
	textRotary = "text rotary"      // f32 [samples·text tokens, head size]
	imageText  = "text seen from"   // i32 [samples·image tokens]
	imageTo    = "text seen before" // i32 [samples·image tokens]
)

// Build implements [model.Family].
func (m *Kandinsky5) Build(_ *model.Config, b *nn.Builder) model.Outputs {
	text := m.stream(b, TextTokens, textRotary, textLo, textHi)
	image := m.stream(b, ImageTokens, Rotary, imageLo, imageHi)
	n := ir.Static(image.samples)
	y := m.embedded(b.Sub("text_embeddings"), b.Input(Text, tensor.F32, text.rows(), ir.Static(m.Text)), m.Width)
	c := m.time(b.Sub("time_embeddings"), b.Input(Time, tensor.F32, n, ir.Static(m.Width)))
	c = c.Add(m.embedded(b.Sub("pooled_text_embeddings"), b.Input(Pooled, tensor.F32, n, ir.Static(m.Pooled)), m.TimeWidth)).Activate(ir.SiLU)
	x := b.Input(Latents, tensor.F32, image.rows(), ir.Static(m.token(m.given())))
	x = b.Linear("visual_embeddings.in_layer", x, m.Width, true)
	for i := range m.TextLayers {
		y = m.textBlock(b.Sub("text_transformer_blocks.%d", i), text, y, c)
	}
	across := image
	across.lo, across.hi = b.Input(imageText, tensor.I32, image.rows()), b.Input(imageTo, tensor.I32, image.rows())
	for i := range m.Layers {
		x = m.block(b.Sub("visual_transformer_blocks.%d", i), image, across, x, y, c)
	}
	out, o := newStream(b, PredictedTokens), b.Sub("out_layer")
	mod := chunks(o.Linear("modulation.out_layer", c, 2*m.Width, true), 2) // shift, scale
	x = x.Gather(b.Input(Predicted, tensor.I32, out.rows()))
	return outputs(b, o.Linear("out_layer", out.modulated(x, mod[0], mod[1], kandinskyEps), m.token(m.Channels), true))
}

func (m *Kandinsky5) stream(b *nn.Builder, axis, table, lo, hi string) keyedStream {
	s := newStream(b, axis)
	return keyedStream{
		s, b.Input(table, tensor.F32, s.rows(), ir.Static(m.headDim())),
		b.Input(lo, tensor.I32, s.rows()), b.Input(hi, tensor.I32, s.rows()),
	}
}

// embedded returns norm(linear(x)), the embedding of text tokens or of the pooled prompt.
func (m *Kandinsky5) embedded(b *nn.Builder, x graph.Tensor, size int) graph.Tensor {
	return b.LayerNorm("norm", b.Linear("in_layer", x, size, true), kandinskyEps)
}

// time returns the embedding of the timestep.
func (m *Kandinsky5) time(b *nn.Builder, x graph.Tensor) graph.Tensor {
	return b.Linear("out_layer", b.Linear("in_layer", x, m.TimeWidth, true).Activate(ir.SiLU), m.TimeWidth, true)
}

// textBlock builds a text block.
func (m *Kandinsky5) textBlock(b *nn.Builder, s keyedStream, y, c graph.Tensor) graph.Tensor {
	mod := chunks(b.Linear("text_modulation.out_layer", c, 6*m.Width, true), 6) // shift, scale, gate of each half
	b.Segment()
	defer b.EndSegments()
	h := s.modulated(y, mod[0], mod[1], kandinskyEps)
	y = s.added(y, m.attention(b.Sub("self_attention"), s, h, h), mod[2])
	return s.added(y, m.feedForward(b, s.modulated(y, mod[3], mod[4], kandinskyEps)), mod[5])
}

// block builds an image block. y is the text; across holds the bounds of the text keys.
func (m *Kandinsky5) block(b *nn.Builder, s, across keyedStream, x, y, c graph.Tensor) graph.Tensor {
	mod := chunks(b.Linear("visual_modulation.out_layer", c, 9*m.Width, true), 9)
	b.Segment()
	defer b.EndSegments()
	h := s.modulated(x, mod[0], mod[1], kandinskyEps)
	x = s.added(x, m.attention(b.Sub("self_attention"), s, h, h), mod[2])
	across.table = graph.Tensor{} // text positions are unrelated to image positions
	x = s.added(x, m.attention(b.Sub("cross_attention"), across, s.modulated(x, mod[3], mod[4], kandinskyEps), y), mod[5])
	return s.added(x, m.feedForward(b, s.modulated(x, mod[6], mod[7], kandinskyEps)), mod[8])
}

// attention builds attention from x to y, with rotary embeddings if s has a table.
func (m *Kandinsky5) attention(b *nn.Builder, s keyedStream, x, y graph.Tensor) graph.Tensor {
	size := m.headDim()
	normed := func(name, norm string, x graph.Tensor) graph.Tensor {
		h := b.Linear(name, x, m.Width, true)
		h = nn.PerHead(h, size, func(h graph.Tensor) graph.Tensor { return b.RMSNorm(norm, h, kandinskyHeadEps) })
		if s.table.Valid() {
			h = h.RoPEInterleaved(s.table, size)
		}
		return h
	}
	q, k := normed("to_query", "query_norm", x), normed("to_key", "key_norm", y)
	o := q.Attention(k, b.Linear("to_value", y, m.Width, true), s.lo, s.hi, attends(m.Width/size, size))
	return b.Linear("out_layer", o, m.Width, true)
}

func (m *Kandinsky5) feedForward(b *nn.Builder, x graph.Tensor) graph.Tensor {
	b = b.Sub("feed_forward")
	return b.Linear("out_layer", b.Linear("in_layer", x, m.Units, false).Activate(ir.GELU), m.Width, false)
}
