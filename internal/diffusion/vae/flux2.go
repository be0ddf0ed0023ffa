package vae

import (
	"fmt"
	"math"
	"regexp"

	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	// AutoencoderKLFlux2 of FLUX.2: an AutoencoderKL whose latents are normalized by the
	// statistics of a batch norm over patches.
	register("AutoencoderKLFlux2", func(f *model.Fields) Autoencoder {
		a := &flux2{}
		keys := a.read(f, 2, 32, 128, 256, 512, 512)
		a.Decoder = f.Ints("decoder_block_out_channels", a.Encoder...)
		if len(a.Decoder) != len(a.Encoder) {
			f.Fail("decoder_block_out_channels", fmt.Sprintf("%d levels", len(a.Decoder)), fmt.Sprintf("as many as block_out_channels has, %d", len(a.Encoder)))
		}
		a.NormEps = f.Float("batch_norm_eps", 1e-4)
		f.Float("batch_norm_momentum", 0.1) // training only
		patch := f.Ints("patch_size", 2, 2)
		if len(patch) != 2 || patch[0] != patch[1] || patch[0] < 1 || patch[0] > 16 {
			f.Fail("patch_size", fmt.Sprint(patch), "two equal numbers of 1 to 16")
			patch = []int{1, 1}
		}
		a.Patch = patch[0]
		f.Only(append(keys, "decoder_block_out_channels", "batch_norm_eps", "batch_norm_momentum", "patch_size")...)
		return a
	})
}

// flux2 is an AutoencoderKLFlux2.
type flux2 struct {
	kl
	NormEps float64
	Patch   int
}

// Space implements [Autoencoder].
func (a *flux2) Space() Space {
	s := a.kl.Space()
	s.Multiple *= a.Patch
	return s
}

// Skips implements [model.Skipper]. The statistics are read by scale.
func (a *flux2) Skips(*model.Config) []model.Skip {
	return []model.Skip{{Names: regexp.MustCompile(`^bn\.`), Why: "statistics of latents", Expected: true}}
}

// Build implements [model.Family].
func (a *flux2) Build(_ *model.Config, b *nn.Builder) model.Outputs { return build(a, b) }

// scale reads the batch norm statistics: (z − running mean)/√(running variance + eps), per
// channel and position within a patch.
func (a *flux2) scale(read func(name string) ([]float32, error)) (*Scale, error) {
	s := &Scale{Patch: a.Patch}
	var err error
	if s.Mean, err = read("bn.running_mean"); err != nil {
		return nil, err
	}
	variance, err := read("bn.running_var")
	if err != nil {
		return nil, err
	}
	n := a.Latent * a.Patch * a.Patch
	for name, x := range map[string][]float32{"bn.running_mean": s.Mean, "bn.running_var": variance} {
		if len(x) != n {
			return nil, fmt.Errorf("%w: tensor %q has %d elements, expected %d", nn.ErrShape, name, len(x), n)
		}
	}
	for _, v := range variance {
		s.Factor = append(s.Factor, 1/float32(math.Sqrt(float64(v+float32(a.NormEps)))))
	}
	return s, nil
}
