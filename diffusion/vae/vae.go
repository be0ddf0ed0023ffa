// Package vae turns pictures into latents and back, by the autoencoders of diffusers: one
// file for each, registered with package model by its class name. A latent has a pixel for
// every eight by eight of the picture, and a few channels; a diffusion transformer works
// on latents.
//
// [Open] has an autoencoder on a device; [ReadScale] says how its latents are brought to
// the numbers that a transformer takes, and needs no device.
package vae

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/lorafuse/lorafuse/diffusion/dit"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/model"
	"github.com/lorafuse/lorafuse/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

var (
	// ErrSize is wrapped where a picture or a latent is none that the autoencoder can take.
	ErrSize = errors.New("wrong size")
	// ErrModel is wrapped where a folder has no autoencoder.
	ErrModel = errors.New("not an autoencoder")
	// ErrOption is wrapped where an option makes no sense.
	ErrOption = errors.New("wrong option")
)

// Picture is pixels of −1 to 1: Values are [Channels, Height, Width].
type Picture struct {
	Channels, Height, Width int
	Values                  []float32
}

// Moments are what an encoder says of a picture: latents are normally distributed around
// Mean, with the logarithms LogVar of their variances.
type Moments struct{ Mean, LogVar dit.Latent }

// Sample is the latent of standard normal numbers, one for each value:
// mean + exp(logvar/2)·noise. flow.Draw.Posterior draws them.
func (m Moments) Sample(noise []float32) dit.Latent {
	z := m.Mean
	z.Values = make([]float32, len(m.Mean.Values))
	for i, mean := range m.Mean.Values {
		z.Values[i] = mean + float32(math.Exp(float64(m.LogVar.Values[i])/2))*noise[i]
	}
	return z
}

// The range of logarithms of variances.
const (
	leastLogVar = -30
	mostLogVar  = 20
)

// Names of the inputs and of the outputs of autoencoders, all f32 [1, rows, columns,
// channels], and of the axes that say how large a latent is: nn.Builder.Size.
const (
	Pixels  = "pixels"
	Latent  = "latent"
	moments = "moments" // mean, then logarithms of variances
	decoded = "decoded"

	Rows    = "latent rows"
	Columns = "latent columns"
)

// Space is what the latents of an autoencoder are like.
type Space struct {
	Channels int // of a latent
	Pixels   int // a row of a latent is so many rows of pixels
	Multiple int // height and width of a picture are multiples of it
	Colours  int // channels of a picture that is encoded
	Painted  int // channels of one that is decoded
}

// Autoencoder is the [model.Family] of an autoencoder.
type Autoencoder interface {
	model.Family
	// Space is what latents are like.
	Space() Space
	// encode gives the moments of x, and decode the pixels of z.
	encode(n net, x image) image
	decode(n net, z image) image
	// clamped says that pixels are brought into −1 to 1.
	clamped() bool
	// scale is what the configuration says of latents, and read gives a vector of the
	// checkpoint.
	scale(read func(name string) ([]float32, error)) (*Scale, error)
}

// build emits both halves of an autoencoder.
func build(a Autoencoder, b *nn.Builder) model.Outputs {
	return model.Outputs{Named: map[string]graph.Tensor{moments: emitEncoder(a, b), decoded: emitDecoder(a, b)}}
}

func emitEncoder(a Autoencoder, b *nn.Builder) graph.Tensor {
	s := a.Space()
	return a.encode(net{b: b}, input(b, Pixels, s.Pixels, s.Colours)).Tensor
}

func emitDecoder(a Autoencoder, b *nn.Builder) graph.Tensor {
	return a.decode(net{b: b}, input(b, Latent, 1, a.Space().Channels)).Tensor
}

// input declares an image with so many rows for each of a latent.
func input(b *nn.Builder, name string, times, channels int) image {
	x := image{h: times * b.Size(Rows), w: times * b.Size(Columns), c: channels}
	x.Tensor = b.Input(name, tensor.F32, ir.ShapeOf(1, x.h, x.w, x.c)...)
	return x
}

// of gives the family of a configuration. Errors: ErrModel.
func of(c *model.Config) (Autoencoder, error) {
	a, ok := c.Family.(Autoencoder)
	if !ok {
		return nil, fmt.Errorf("%w: the folder has a %s; supported: %s", ErrModel, c.Architecture, strings.Join(classes, ", "))
	}
	return a, nil
}

// classes are the names of the autoencoders.
var classes = []string{klClass, flux2Class, qwenClass}
