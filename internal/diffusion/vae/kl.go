package vae

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	// AutoencoderKL (Rombach et al. 2021, arXiv 2112.10752): FLUX.1, Z-Image, images of
	// Kandinsky 5, and originally Stable Diffusion.
	register("AutoencoderKL", func(f *model.Fields) Autoencoder {
		a := &kl{}
		keys := a.read(f, 1, 4, 64)
		a.Scaling, a.Shift = f.Float("scaling_factor", 0.18215), f.Float("shift_factor", 0)
		a.Mean, a.Std = f.Floats("latents_mean"), f.Floats("latents_std")
		f.Bool("force_upcast", true) // concerns computation in f16, whose range is too small
		f.Only(append(keys, "scaling_factor", "shift_factor", "latents_mean", "latents_std", "force_upcast")...)
		return a
	})
}

// kl is an AutoencoderKL: levels of residual blocks with group norms, each at half the
// resolution of the previous one, and attention between all pixels in the middle.
type kl struct {
	In, Out, Latent  int // channels
	Encoder, Decoder []int
	Layers           int // residual blocks per level of the encoder
	Groups           int
	Attention        bool
	Quant, PostQuant bool // a convolution after the encoder, and before the decoder

	Scaling, Shift float64
	Mean, Std      []float64
}

const klEps = 1e-6

// read reads the keys that the classes of this kind share and returns their names. layers,
// channels and widths are the defaults.
func (a *kl) read(f *model.Fields, layers, channels int, widths ...int) []string {
	a.In, a.Out = f.Int("in_channels", 3), f.Int("out_channels", 3)
	a.Latent = f.Int("latent_channels", channels)
	a.Encoder = f.Ints("block_out_channels", widths...)
	a.Decoder = a.Encoder
	a.Layers, a.Groups = f.Int("layers_per_block", layers), f.Int("norm_num_groups", 32)
	a.Attention = f.Bool("mid_block_add_attention", true)
	a.Quant, a.PostQuant = f.Bool("use_quant_conv", true), f.Bool("use_post_quant_conv", true)
	f.IDs("sample_size") // training tile size, here an option
	for _, k := range []struct{ key, block string }{{"down_block_types", "DownEncoderBlock2D"}, {"up_block_types", "UpDecoderBlock2D"}} {
		blocks := f.Strings(k.key)
		for _, block := range blocks {
			if block != k.block {
				f.Unsupported(k.key, block, []string{k.block})
			}
		}
		if f.Has(k.key) && len(blocks) != len(a.Encoder) {
			f.Fail(k.key, fmt.Sprintf("%d blocks", len(blocks)), fmt.Sprintf("one for each of block_out_channels, %d", len(a.Encoder)))
		}
	}
	if act := f.String("act_fn", "silu"); act != "silu" && act != "swish" {
		f.Unsupported("act_fn", act, []string{"silu", "swish"})
	}
	return []string{"in_channels", "out_channels", "latent_channels", "block_out_channels", "layers_per_block", "norm_num_groups",
		"mid_block_add_attention", "use_quant_conv", "use_post_quant_conv", "sample_size", "down_block_types", "up_block_types", "act_fn"}
}

// Limits that keep a wrong number in a configuration from exhausting memory.
const (
	mostLevels = 8
	mostLayers = 64
)

// Check implements [model.Family].
func (a *kl) Check(*model.Config) error {
	if err := checkDepth("block_out_channels", len(a.Encoder), "layers_per_block", a.Layers); err != nil {
		return err
	}
	sizes := []model.Size{{Key: "in_channels", N: a.In}, {Key: "out_channels", N: a.Out}, {Key: "latent_channels", N: a.Latent},
		{Key: "layers_per_block", N: a.Layers}, {Key: "norm_num_groups", N: a.Groups}}
	for _, w := range slices.Concat(a.Encoder, a.Decoder) {
		sizes = append(sizes, model.Size{Key: "block_out_channels", N: w})
	}
	if err := model.CheckSizes(sizes...); err != nil {
		return err
	}
	for _, w := range slices.Concat(a.Encoder, a.Decoder) {
		if w%a.Groups != 0 {
			return fmt.Errorf("%w: block_out_channels: found %d, expected multiples of norm_num_groups, %d", model.ErrConfig, w, a.Groups)
		}
	}
	return nil
}

// checkDepth validates the numbers of levels and of blocks per level.
func checkDepth(levelKey string, levels int, layerKey string, layers int) error {
	if levels < 1 || levels > mostLevels {
		return fmt.Errorf("%w: %s: found %d levels, expected 1 to %d", model.ErrConfig, levelKey, levels, mostLevels)
	}
	if layers > mostLayers {
		return fmt.Errorf("%w: %s: found %d, expected %d at most", model.ErrConfig, layerKey, layers, mostLayers)
	}
	return nil
}

// Space implements [Autoencoder].
func (a *kl) Space() Space {
	pixels := 1 << (len(a.Encoder) - 1)
	return Space{Channels: a.Latent, Pixels: pixels, Multiple: pixels, Colours: a.In, Painted: a.Out}
}

// Build implements [model.Family].
func (a *kl) Build(_ *model.Config, b *nn.Builder) model.Outputs { return build(a, b) }

// OtherNames implements [model.Renamer]. Older checkpoints name the attention layers
// differently.
func (a *kl) OtherNames(name string) []string {
	for now, before := range map[string]string{"to_q.": "query.", "to_k.": "key.", "to_v.": "value.", "to_out.0.": "proj_attn."} {
		if at, last, ok := strings.Cut(name, "attentions.0."+now); ok {
			return []string{at + "attentions.0." + before + last}
		}
	}
	return nil
}

// scale implements [Autoencoder]: (z − shift)·scaling, or with statistics per channel (z −
// mean)/std·scaling.
func (a *kl) scale(func(string) ([]float32, error)) (*Scale, error) {
	if a.Scaling == 0 {
		return nil, fmt.Errorf("%w: scaling_factor: found 0, expected another number", model.ErrConfig)
	}
	if len(a.Mean) == 0 && len(a.Std) == 0 {
		return &Scale{Mean: []float32{float32(a.Shift)}, Factor: []float32{float32(a.Scaling)}}, nil
	}
	if a.Shift != 0 {
		return nil, fmt.Errorf("%w: shift_factor %v beside latents_mean", model.ErrConfig, a.Shift)
	}
	return byChannel(a.Mean, a.Std, a.Scaling, a.Latent)
}

func (a *kl) clamped() bool { return false }

func (a *kl) encode(n net, x image) image {
	e := n.sub("encoder")
	x = e.conv("conv_in", x, a.Encoder[0], around)
	for i, width := range a.Encoder {
		level := e.sub("down_blocks.%d", i)
		for j := range a.Layers {
			x = a.resnet(level.sub("resnets.%d", j), x, width)
		}
		if i < len(a.Encoder)-1 {
			x = level.conv("downsamplers.0.conv", x, width, half)
		}
	}
	x = a.middle(e.sub("mid_block"), x)
	x = e.conv("conv_out", a.norm(e, "conv_norm_out", x).silu(), 2*a.Latent, around)
	if a.Quant {
		x = n.pointConv("quant_conv", x, 2*a.Latent)
	}
	return x
}

func (a *kl) decode(n net, z image) image {
	if a.PostQuant {
		z = n.pointConv("post_quant_conv", z, a.Latent)
	}
	d := n.sub("decoder")
	last := len(a.Decoder) - 1
	x := a.middle(d.sub("mid_block"), d.conv("conv_in", z, a.Decoder[last], around))
	for i := range a.Decoder {
		level, width := d.sub("up_blocks.%d", i), a.Decoder[last-i]
		for j := range a.Layers + 1 {
			x = a.resnet(level.sub("resnets.%d", j), x, width)
		}
		if i < last {
			x = level.conv("upsamplers.0.conv", x.twice(), width, around)
		}
	}
	return d.conv("conv_out", a.norm(d, "conv_norm_out", x).silu(), a.Out, around)
}

// middle builds a residual block, attention if configured, and another residual block.
func (a *kl) middle(n net, x image) image {
	x = a.resnet(n.sub("resnets.0"), x, x.c)
	if a.Attention {
		at := n.sub("attentions.0")
		h := a.norm(at, "group_norm", x)
		rows := h.rows()
		h = h.attend(at.linear("to_q", rows, x.c), at.linear("to_k", rows, x.c), at.linear("to_v", rows, x.c))
		h.Tensor = at.linear("to_out.0", h.Tensor, x.c)
		x = x.add(h.pixels())
	}
	return a.resnet(n.sub("resnets.1"), x, x.c)
}

// resnet returns x plus two convolutions of it. If the width changes, x passes a pointwise
// convolution.
func (a *kl) resnet(n net, x image, width int) image {
	h := n.conv("conv1", a.norm(n, "norm1", x).silu(), width, around)
	h = n.conv("conv2", a.norm(n, "norm2", h).silu(), width, around)
	if x.c != width {
		x = n.pointConv("conv_shortcut", x, width)
	}
	return x.add(h)
}

func (a *kl) norm(n net, name string, x image) image {
	x.Tensor = x.GroupNorm(n.vector(name+".weight", x.c), n.vector(name+".bias", x.c), a.Groups, klEps)
	return x
}
