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
		Class: "ZImageTransformer2DModel", Read: readZImage, Targets: projections,
		Marks:    []string{"cap_pad_token", "layers.0.attention.to_q.weight"},
		Original: []string{"cap_pad_token", "layers.0.attention.qkv.weight"},
		Config: func(s Shapes) map[string]any {
			head, width := s.Dim("layers.0.attention.norm_q.weight", 0), s.Dim("all_x_embedder.2-1.weight", 0)
			heads := s.Ratio("n_heads", width, head)
			return map[string]any{
				"dim": width, "n_heads": heads, "n_kv_heads": heads,
				"in_channels":      s.Ratio("all_patch_size", s.Dim("all_x_embedder.2-1.weight", 1), patch*patch),
				"n_layers":         s.Count("layers.%d.attention.to_q.weight"),
				"n_refiner_layers": s.Count("noise_refiner.%d.attention.to_q.weight"),
				"cap_feat_dim":     s.Dim("cap_embedder.0.weight", 0),
				"axes_dims":        s.Axes("axes_dims", head, 32, 48, 48),
			}
		},
	})
}

// ZImage is Z-Image (Z-Image team 2025, arXiv 2511.22699). Separate refiners process image
// and text tokens, then one stream processes both, [image, text]. Each part is padded to a
// multiple of zImageMultiple with learned tokens, which are attended to.
type ZImage struct {
	Channels          int // of a latent
	Patch, FramePatch int // spatial and frame size of a token
	Width, Heads      int
	Layers, Refiners  int
	Text              int
	Eps               float32
	HeadNorm          bool
	TimeScale         float64
	Theta             float64
	Axes, Longest     []int // of the rotary table: dimensions, and numbers of positions
}

const (
	zImageMultiple  = 32
	zImageTimeMLP   = 1024 // hidden units of the timestep embedding
	zImageTimeWidth = 256  // maximum width of the timestep embedding
	zImageHeadEps   = 1e-5
	zImageFinalEps  = 1e-6
)

// Axes and inputs that only Z-Image has.
const (
	filledImage = "filled image tokens"
	filledText  = "filled text tokens"

	imagePlaces = "image places" // i32 [samples·filled image tokens]: rows among all tokens
	textPlaces  = "text places"  // i32 [samples·filled text tokens]
)

func readZImage(_ *model.Config, f *model.Fields) model.Family {
	z := &ZImage{
		Channels:  f.Int("in_channels", 16),
		Width:     f.Int("dim", 3840),
		Heads:     f.Int("n_heads", 30),
		Layers:    f.Int("n_layers", 30),
		Refiners:  f.Int("n_refiner_layers", 2),
		Text:      f.Int("cap_feat_dim", 2560),
		Eps:       float32(f.Float("norm_eps", 1e-5)),
		HeadNorm:  f.Bool("qk_norm", true),
		TimeScale: f.Float("t_scale", 1000),
		Theta:     f.Float("rope_theta", 256),
		Axes:      f.Ints("axes_dims", 32, 48, 48),
		Longest:   f.Ints("axes_lens", 1024, 512, 512),
	}
	f.Int("n_kv_heads", 30) // diffusers ignores the value: each head has its own keys
	if f.Has("siglip_feat_dim") {
		f.Unsupported("siglip_feat_dim", f.Int("siglip_feat_dim", 0), []string{"null: pictures are not looked at by SigLIP"})
	}
	z.readPatches(f)
	return z
}

// readPatches selects the patch size: the default of diffusers, or the first in the list.
func (z *ZImage) readPatches(f *model.Fields) {
	sizes, frames := f.Ints("all_patch_size", 2), f.Ints("all_f_patch_size", 1)
	if len(sizes) == 0 || len(sizes) != len(frames) {
		f.Fail("all_f_patch_size", fmt.Sprintf("%d sizes", len(frames)), fmt.Sprintf("one for each of the %d of all_patch_size, and at least one", len(sizes)))
		return
	}
	z.Patch, z.FramePatch = sizes[0], frames[0]
	for i := range sizes {
		if sizes[i] == 2 && frames[i] == 1 {
			z.Patch, z.FramePatch = 2, 1
		}
	}
}

// Check implements [model.Family].
func (z *ZImage) Check(*model.Config) error {
	err := model.CheckSizes(
		model.Size{Key: "dim", N: z.Width}, model.Size{Key: "n_heads", N: z.Heads}, model.Size{Key: "in_channels", N: z.Channels},
		model.Size{Key: "all_patch_size", N: z.Patch}, model.Size{Key: "all_f_patch_size", N: z.FramePatch}, model.Size{Key: "cap_feat_dim", N: z.Text},
	)
	if err != nil {
		return err
	}
	if err = checkLayers("n_layers", z.Layers); err == nil {
		err = checkLayers("n_refiner_layers", z.Refiners)
	}
	switch {
	case err != nil:
		return err
	case z.Patch > maxPatch || z.FramePatch > maxPatch:
		return fmt.Errorf("%w: all_patch_size and all_f_patch_size: found %d and %d, expected %d at most", model.ErrConfig, z.Patch, z.FramePatch, maxPatch)
	case len(z.Longest) != len(z.Axes):
		return fmt.Errorf("%w: axes_lens: found %d, expected one for each of the %d of axes_dims", model.ErrConfig, len(z.Longest), len(z.Axes))
	case z.Width%z.Heads != 0:
		return fmt.Errorf("%w: dim %d is not a multiple of n_heads %d", model.ErrConfig, z.Width, z.Heads)
	}
	return checkRotary("axes_dims", z.Axes, 3, "dim/n_heads", z.Width/z.Heads)
}

// Build implements [model.Family].
func (z *ZImage) Build(_ *model.Config, b *nn.Builder) model.Outputs {
	image := keyedStream{stream: newStream(b, filledImage)}
	text := keyedStream{stream: newStream(b, filledText)}
	joint := keyedStream{stream: newStream(b, nn.Tokens)}
	joint.table = b.Input(Rotary, tensor.F32, joint.rows(), ir.Static(z.Width/z.Heads))
	joint.lo, joint.hi = b.Input(nn.KeyStart, tensor.I32, joint.rows()), b.Input(nn.KeyEnd, tensor.I32, joint.rows())
	imageAt, textAt := b.Input(imagePlaces, tensor.I32, image.rows()), b.Input(textPlaces, tensor.I32, text.rows())
	image.table, text.table = joint.table.Gather(imageAt), joint.table.Gather(textAt)
	image.lo, image.hi = b.Input(imageLo, tensor.I32, image.rows()), b.Input(imageHi, tensor.I32, image.rows())
	text.lo, text.hi = b.Input(textLo, tensor.I32, text.rows()), b.Input(textHi, tensor.I32, text.rows())

	c := z.time(b.Sub("t_embedder"), image.samples)
	x, y := z.pictures(b, image.stream), z.captions(b, text.stream)
	for i := range z.Refiners {
		x = z.block(b.Sub("noise_refiner.%d", i), image, x, c)
	}
	for i := range z.Refiners {
		y = z.block(b.Sub("context_refiner.%d", i), text, y, graph.Tensor{})
	}
	x = b.G.Const(0, joint.rows(), ir.Static(z.Width)).ScatterRows(x, imageAt).ScatterRows(y, textAt)
	for i := range z.Layers {
		x = z.block(b.Sub("layers.%d", i), joint, x, c)
	}
	return outputs(b, z.final(b.Sub("all_final_layer.%s", z.key()), x, c))
}

// key returns the name of a patch size in diffusers' layer names.
func (z *ZImage) key() string { return fmt.Sprintf("%d-%d", z.Patch, z.FramePatch) }

// token returns the number of latent values per token.
func (z *ZImage) token() int { return z.FramePatch * z.Patch * z.Patch * z.Channels }

// time returns the timestep embedding that modulates blocks.
func (z *ZImage) time(b *nn.Builder, samples int) graph.Tensor {
	t := b.Linear("mlp.0", b.Input(Time, tensor.F32, ir.Static(samples), ir.Static(timeChannels)), zImageTimeMLP, true)
	return b.Linear("mlp.2", t.Activate(ir.SiLU), min(z.Width, zImageTimeWidth), true)
}

// pictures returns the embedded image tokens.
func (z *ZImage) pictures(b *nn.Builder, s stream) graph.Tensor {
	in := newStream(b, ImageTokens)
	x := b.Input(Latents, tensor.F32, in.rows(), ir.Static(z.token()))
	x = b.Linear("all_x_embedder."+z.key(), x, z.Width, true)
	return z.fill(b, "x_pad_token", s, x, b.Input(ImageRows, tensor.I32, in.rows()))
}

// captions returns the embedded text tokens.
func (z *ZImage) captions(b *nn.Builder, s stream) graph.Tensor {
	in, e := newStream(b, TextTokens), b.Sub("cap_embedder")
	x := b.Input(Text, tensor.F32, in.rows(), ir.Static(z.Text))
	x = e.Linear("1", e.RMSNorm("0", x, z.Eps), z.Width, true)
	return z.fill(b, "cap_pad_token", s, x, b.Input(TextRows, tensor.I32, in.rows()))
}

// fill returns the padded stream: x at rows, and learned tokens elsewhere.
func (z *ZImage) fill(b *nn.Builder, learned string, s stream, x, rows graph.Tensor) graph.Tensor {
	one := b.Frozen(learned, 1, z.Width).Cast(tensor.F32)
	all := b.G.Of(b.G.IR().Broadcast(one.Value(), ir.Shape{s.rows(), ir.Static(z.Width)}))
	return all.ScatterRows(x, rows)
}

// block builds a block. Without c, as in the text refiners, it is not modulated.
func (z *ZImage) block(b *nn.Builder, s keyedStream, x, c graph.Tensor) graph.Tensor {
	defer b.EndSegments()
	if !c.Valid() {
		b.Segment()
		x = x.Add(z.attention(b, s, b.RMSNorm("attention_norm1", x, z.Eps)))
		return x.Add(z.feedForward(b, b.RMSNorm("ffn_norm1", x, z.Eps)))
	}
	mod := chunks(b.Linear("adaLN_modulation.0", c, 4*z.Width, true), 4) // scale, gate; scale, gate
	b.Segment()
	h := s.scaled(b.RMSNorm("attention_norm1", x, z.Eps), mod[0].AddScalar(1))
	x = s.added(x, z.attention(b, s, h), mod[1].Apply(ir.Tanh))
	h = s.scaled(b.RMSNorm("ffn_norm1", x, z.Eps), mod[2].AddScalar(1))
	return s.added(x, z.feedForward(b, h), mod[3].Apply(ir.Tanh))
}

// attention builds the attention half of a block, including the norm of its output.
func (z *ZImage) attention(b *nn.Builder, s keyedStream, x graph.Tensor) graph.Tensor {
	a, size := b.Sub("attention"), z.Width/z.Heads
	turned := func(name, norm string) graph.Tensor {
		h := a.Linear(name, x, z.Width, false)
		if z.HeadNorm {
			h = nn.PerHead(h, size, func(h graph.Tensor) graph.Tensor { return a.RMSNorm(norm, h, zImageHeadEps) })
		}
		return h.RoPEInterleaved(s.table, size)
	}
	q, k := turned("to_q", "norm_q"), turned("to_k", "norm_k")
	y := q.Attention(k, a.Linear("to_v", x, z.Width, false), s.lo, s.hi, attends(z.Heads, size))
	return b.RMSNorm("attention_norm2", a.Linear("to_out.0", y, z.Width, false), z.Eps)
}

// feedForward builds the feed-forward half of a block, including the norm of its output.
func (z *ZImage) feedForward(b *nn.Builder, x graph.Tensor) graph.Tensor {
	f, units := b.Sub("feed_forward"), int(float64(z.Width)/3*8)
	gate, up := f.Linear("w1", x, units, false), f.Linear("w3", x, units, false)
	return b.RMSNorm("ffn_norm2", f.Linear("w2", gate.GLU(up, ir.SiLU), z.Width, false), z.Eps)
}

// final returns the velocity, which is the negated output of the last layer.
func (z *ZImage) final(b *nn.Builder, x, c graph.Tensor) graph.Tensor {
	s := newStream(b, PredictedTokens)
	x = x.Gather(b.Input(Predicted, tensor.I32, s.rows()))
	scale := b.Linear("adaLN_modulation.1", c.Activate(ir.SiLU), z.Width, true)
	return b.Linear("linear", s.modulated(x, graph.Tensor{}, scale, zImageFinalEps), z.token(), true).Scale(-1)
}
