package vae

import (
	"fmt"
	"path/filepath"

	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/tensor"
)

// Scale normalizes latents to about mean 0 and standard deviation 1: (z − Mean)·Factor. Mean
// and Factor have one value for all, one per channel, or one per channel of a patch of Patch
// by Patch positions, where index c·Patch² + row·Patch + column belongs to channel c.
type Scale struct {
	Mean, Factor []float32
	Patch        int
}

// ReadScale reads the normalization of the autoencoder in dir from its config.json. If it is in
// the weights, ReadScale calls fetch, which downloads them if necessary and returns the
// folder. Errors: ErrModel, and errors of model.ReadConfig, fetch and weights.OpenDiffusion.
func ReadScale(dir string, fetch func() (string, error)) (*Scale, error) {
	c, err := model.ReadConfig(dir)
	if err != nil {
		return nil, err
	}
	a, err := of(c)
	if err != nil {
		return nil, fmt.Errorf("vae: %s: %w", filepath.Clean(dir), err)
	}
	var set *weights.Set
	defer func() {
		if set != nil {
			set.Close()
		}
	}()
	s, err := a.scale(func(name string) ([]float32, error) {
		if set == nil {
			dir, err := fetch()
			if err != nil {
				return nil, err
			}
			if set, err = weights.OpenDiffusion(dir); err != nil {
				return nil, err
			}
		}
		return floats(set, name)
	})
	if err != nil {
		return nil, fmt.Errorf("vae: %s: %w", filepath.Clean(dir), err)
	}
	return s, nil
}

// floats reads a tensor.
func floats(set *weights.Set, name string) (x []float32, err error) {
	v, err := set.Lookup(name)
	if err != nil {
		return nil, err
	}
	d, err := tensor.ParseDType(v.DType.String())
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", name, err)
	}
	err = v.WithBytes(func(data []byte) error {
		x, err = tensor.Tensor{DType: d, Shape: v.Shape, Data: data}.Float32s()
		return err
	})
	return x, err
}

// Normalise normalizes a latent for a transformer, in place. It leaves a latent with more
// channels than s has values unchanged: such a latent belongs to another autoencoder, and no
// transformer for this one accepts it.
func (s *Scale) Normalise(z dit.Latent) {
	s.each(z, func(x, mean, factor float32) float32 { return (x - mean) * factor })
}

// Denormalise is the inverse of Normalise.
func (s *Scale) Denormalise(z dit.Latent) {
	s.each(z, func(x, mean, factor float32) float32 { return float32(x/factor) + mean })
}

func (s *Scale) each(z dit.Latent, f func(x, mean, factor float32) float32) {
	patch := max(s.Patch, 1)
	if n := s.Channels(); n > 0 && z.Channels > n {
		return
	}
	i := 0
	for c := range z.Channels {
		for range z.Frames {
			for y := range z.Height {
				for x := range z.Width {
					at := 0
					if len(s.Mean) > 1 {
						at = (c*patch+y%patch)*patch + x%patch
					}
					z.Values[i] = f(z.Values[i], s.Mean[at], s.Factor[at])
					i++
				}
			}
		}
	}
}

// Channels returns the number of latent channels for which s has values, or 0 if one value
// applies to all.
func (s *Scale) Channels() int {
	if len(s.Mean) == 1 {
		return 0
	}
	return len(s.Mean) / (max(s.Patch, 1) * max(s.Patch, 1))
}

// byChannel returns (z − mean)/std·scaling per channel.
func byChannel(mean, std []float64, scaling float64, channels int) (*Scale, error) {
	s := &Scale{}
	for key, x := range map[string][]float64{"latents_mean": mean, "latents_std": std} {
		if len(x) != channels {
			return nil, fmt.Errorf("%w: %s: found %d numbers, expected one for each of the %d channels", model.ErrConfig, key, len(x), channels)
		}
	}
	for i := range mean {
		if std[i] == 0 {
			return nil, fmt.Errorf("%w: latents_std: found 0 for channel %d, expected another number", model.ErrConfig, i)
		}
		s.Mean = append(s.Mean, float32(mean[i]))
		s.Factor = append(s.Factor, float32(scaling)/float32(std[i]))
	}
	return s, nil
}
