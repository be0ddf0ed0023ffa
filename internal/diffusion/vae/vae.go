// Package vae encodes images to latents and decodes them with the autoencoders of diffusers.
// Each has a file and is registered with package model by its class name. A latent has one
// position for every eight by eight pixels, and a few channels; diffusion transformers work
// on latents.
//
// [Open] loads an autoencoder to a device. [ReadScale] reads how its latents are normalized
// for a transformer, and needs no device.
package vae

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

var (
	// ErrSize is wrapped if the autoencoder does not support the size of an image or a
	// latent.
	ErrSize = errors.New("wrong size")
	// ErrModel is wrapped if a folder contains no autoencoder.
	ErrModel = errors.New("not an autoencoder")
	// ErrOption is wrapped if an option is invalid.
	ErrOption = errors.New("wrong option")
)

// Picture holds pixels from −1 to 1. Values have the shape [Channels, Height, Width].
type Picture struct {
	Channels, Height, Width int
	Values                  []float32
}

// Moments is the distribution that an encoder predicts for an image: normal with mean Mean
// and log-variance LogVar.
type Moments struct{ Mean, LogVar dit.Latent }

// Sample returns mean + exp(logvar/2)·noise. noise holds one standard normal number per
// value, as flow.Draw.Posterior draws them.
func (m Moments) Sample(noise []float32) dit.Latent {
	z := m.Mean
	z.Values = make([]float32, len(m.Mean.Values))
	for i, mean := range m.Mean.Values {
		z.Values[i] = mean + float32(math.Exp(float64(m.LogVar.Values[i])/2))*noise[i]
	}
	return z
}

// Limits of log-variances.
const (
	leastLogVar = -30
	mostLogVar  = 20
)

// Names of inputs and outputs of autoencoders, all f32 [1, rows, columns, channels], and of
// the axes for the size of the latent (nn.Builder.Size).
const (
	Pixels  = "pixels"
	Latent  = "latent"
	moments = "moments" // mean, then log-variance
	decoded = "decoded"

	Rows    = "latent rows"
	Columns = "latent columns"
)

// Space is the layout of the latents of an autoencoder.
type Space struct {
	Channels int // of a latent
	Pixels   int // image rows per latent row
	Multiple int // divisor of image height and width
	Colours  int // channels of an encoder input
	Painted  int // channels of a decoder output
	// Framed reports that the autoencoder is one for video, whose latents have a frame axis.
	Framed bool
}

// Autoencoder is the [model.Family] of an autoencoder.
type Autoencoder interface {
	model.Family
	// Space returns the layout of latents.
	Space() Space
	// encode returns the moments of x, and decode the pixels of z.
	encode(n net, x image) image
	decode(n net, z image) image
	// clamped reports whether decoded pixels are clamped to −1 … 1.
	clamped() bool
	// scale returns the normalization of latents. read reads a vector from the checkpoint.
	scale(read func(name string) ([]float32, error)) (*Scale, error)
}

// build builds the encoder and the decoder of an autoencoder.
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

// input declares an image input with times rows per latent row.
func input(b *nn.Builder, name string, times, channels int) image {
	x := image{h: times * b.Size(Rows), w: times * b.Size(Columns), c: channels}
	x.Tensor = b.Input(name, tensor.F32, ir.ShapeOf(1, x.h, x.w, x.c)...)
	return x
}

// of returns the autoencoder of a configuration. Errors: ErrModel.
func of(c *model.Config) (Autoencoder, error) {
	a, ok := c.Family.(Autoencoder)
	if !ok {
		return nil, fmt.Errorf("%w: the folder has a %s; supported: %s", ErrModel, c.Architecture, strings.Join(slices.Sorted(slices.Values(classes)), ", "))
	}
	return a, nil
}

// classes lists the supported autoencoder classes.
var classes []string

// register registers an autoencoder class of diffusers.
func register(class string, read func(*model.Fields) Autoencoder) {
	classes = append(classes, class)
	model.Register(class, model.Architecture{Read: func(_ *model.Config, f *model.Fields) model.Family { return read(f) }})
}
