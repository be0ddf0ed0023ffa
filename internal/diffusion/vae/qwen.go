package vae

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	// AutoencoderKLQwenImage (Wan 2.1, arXiv 2503.20314, further trained by Qwen-Image,
	// arXiv 2508.02324) is a video autoencoder. An image is the first frame.
	register("AutoencoderKLQwenImage", func(f *model.Fields) Autoencoder {
		a := &qwen{Base: f.Int("base_dim", 96), Latent: f.Int("z_dim", 16), Colours: f.Int("input_channels", 3),
			Times: f.Ints("dim_mult", 1, 2, 4, 4), Layers: f.Int("num_res_blocks", 2)}
		if scales := f.Floats("attn_scales"); len(scales) > 0 { // diffusers cannot run them either
			f.Fail("attn_scales", scales, "none")
		}
		a.Mean = f.Floats("latents_mean", -0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508, 0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497, 0.2503, -0.2921)
		a.Std = f.Floats("latents_std", 2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743, 3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.9160)
		f.Float("dropout", 0) // training only
		frames := f.Bools("temperal_downsample", false, true, true)
		if len(frames) != len(a.Times)-1 { // temporal downsampling, in addition to rows and columns
			f.Fail("temperal_downsample", fmt.Sprintf("%d steps", len(frames)), fmt.Sprintf("one less than the levels of dim_mult, %d", len(a.Times)-1))
		}
		f.Only("base_dim", "z_dim", "input_channels", "dim_mult", "num_res_blocks", "attn_scales", "latents_mean", "latents_std", "dropout", "temperal_downsample")
		return a
	})
}

// qwen is an AutoencoderKLQwenImage for one frame. A causal kernel covers a frame and the two
// before it; qwen uses only the part for the frame itself. Temporal downsampling does not
// affect the first frame.
type qwen struct {
	Base, Latent, Colours int
	Times                 []int // level widths as multiples of Base
	Layers                int   // residual blocks per level of the encoder

	Mean, Std []float64
}

// Check implements [model.Family].
func (a *qwen) Check(*model.Config) error {
	if err := checkDepth("dim_mult", len(a.Times), "num_res_blocks", a.Layers); err != nil {
		return err
	}
	sizes := []model.Size{{Key: "base_dim", N: a.Base}, {Key: "z_dim", N: a.Latent}, {Key: "input_channels", N: a.Colours}, {Key: "num_res_blocks", N: a.Layers}}
	for _, t := range a.Times {
		sizes = append(sizes, model.Size{Key: "dim_mult", N: t})
	}
	if err := model.CheckSizes(sizes...); err != nil {
		return err
	}
	if a.Base*slices.Max(a.Times) >= 1<<30 {
		return fmt.Errorf("%w: dim_mult: %d times base_dim %d is too large", model.ErrConfig, slices.Max(a.Times), a.Base)
	}
	return nil
}

// Space implements [Autoencoder].
func (a *qwen) Space() Space {
	pixels := 1 << (len(a.Times) - 1)
	return Space{Channels: a.Latent, Pixels: pixels, Multiple: pixels, Colours: a.Colours, Painted: a.Colours, Framed: true}
}

// Skips implements [model.Skipper].
func (a *qwen) Skips(*model.Config) []model.Skip {
	return []model.Skip{{Names: regexp.MustCompile(`\.time_conv\.`), Why: "frames of a film behind the first", Expected: true}}
}

// Build implements [model.Family].
func (a *qwen) Build(_ *model.Config, b *nn.Builder) model.Outputs { return build(a, b) }

// scale implements [Autoencoder]: (z − mean)/std per channel.
func (a *qwen) scale(func(string) ([]float32, error)) (*Scale, error) {
	return byChannel(a.Mean, a.Std, 1, a.Latent)
}

func (a *qwen) clamped() bool { return true }

func (a *qwen) encode(n net, x image) image {
	e := n.sub("encoder")
	x = e.frameConv("conv_in", x, a.Base)
	at := 0
	next := func() net { at++; return e.sub("down_blocks.%d", at-1) }
	for i, t := range a.Times {
		for range a.Layers {
			x = a.resnet(next(), x, t*a.Base)
		}
		if i < len(a.Times)-1 {
			x = next().conv("resample.1", x, x.c, half)
		}
	}
	x = a.middle(e.sub("mid_block"), x)
	x = e.frameConv("conv_out", a.norm(e, "norm_out", x, 1).silu(), 2*a.Latent)
	return n.pointConv("quant_conv", x, 2*a.Latent)
}

func (a *qwen) decode(n net, z image) image {
	z = n.pointConv("post_quant_conv", z, a.Latent)
	d := n.sub("decoder")
	last := len(a.Times) - 1
	x := a.middle(d.sub("mid_block"), d.frameConv("conv_in", z, a.Times[last]*a.Base))
	for i := range a.Times {
		level, width := d.sub("up_blocks.%d", i), a.Times[last-i]*a.Base
		for j := range a.Layers + 1 {
			x = a.resnet(level.sub("resnets.%d", j), x, width)
		}
		if i < last {
			x = level.conv("upsamplers.0.resample.1", x.twice(), width/2, around)
		}
	}
	return d.frameConv("conv_out", a.norm(d, "norm_out", x, 1).silu(), a.Colours)
}

// middle builds a residual block, attention, and another residual block.
func (a *qwen) middle(n net, x image) image {
	x = a.resnet(n.sub("resnets.0"), x, x.c)
	x = a.attention(n.sub("attentions.0"), x)
	return a.resnet(n.sub("resnets.1"), x, x.c)
}

// resnet returns x plus two convolutions of it. If the width changes, x passes a pointwise
// convolution.
func (a *qwen) resnet(n net, x image, width int) image {
	h := n.frameConv("conv1", a.norm(n, "norm1", x, 1).silu(), width)
	h = n.frameConv("conv2", a.norm(n, "norm2", h, 1).silu(), width)
	if x.c != width {
		x = n.pointConv("conv_shortcut", x, width)
	}
	return x.add(h)
}

// attention returns x plus attention between its pixels.
func (a *qwen) attention(n net, x image) image {
	rows := n.pointConv("to_qkv", a.norm(n, "norm", x), 3*x.c).rows()
	h := x.attend(rows.Slice(1, 0, x.c), rows.Slice(1, x.c, 2*x.c), rows.Slice(1, 2*x.c, 3*x.c))
	return x.add(n.pointConv("proj", h, x.c))
}

// leastNorm is the minimum norm of a pixel.
const leastNorm = 1e-12

// norm returns x / ‖x‖ · √c · gamma per pixel, which equals RMS normalization. The shape of
// gamma has two or more axes of size 1 after the channels.
func (a *qwen) norm(n net, name string, x image, more ...int) image {
	gamma := n.vector(name+".gamma", append([]int{x.c, 1, 1}, more...)...)
	x.Tensor = x.RMSNorm(gamma, float32(leastNorm*leastNorm/float64(x.c)))
	return x
}
