// Package dit builds diffusion transformers: one file for each architecture of
// diffusers, registered with package model by its class name. A transformer sees the
// tokens of a picture that is on its way from noise, beside those of a text and perhaps
// of other pictures, and says in which direction the picture lies.
//
// Rows are tokens. The samples of a batch lie one behind the other and have one layout:
// as many tokens of pictures, and as many places for those of their text, whose padding
// sees nothing and is not seen. How many each has is said by each run: one program serves
// pictures of all sizes up to its bounds.
package dit

import (
	"errors"

	"github.com/lorafuse/lorafuse/data"
	"github.com/lorafuse/lorafuse/model"
)

// FlowMatching is the task of diffusion transformers: Σ over samples of weight · mean of
// (velocity − target)² over the elements of the sample, with the inputs Target and
// Weights (Lipman et al. 2022, arXiv 2210.02747).
const FlowMatching model.Task = "flow matching"

// Velocity is the output of diffusion transformers, f32 [samples·predicted tokens,
// channels]: noise − picture, at the tokens that the input Predicted numbers.
const Velocity = "velocity"

// Names of the inputs that transformers declare. An architecture declares those that it
// reads, and may have more of its own.
const (
	Latents   = "latents"        // f32 [samples·image tokens, channels]: what is denoised, then control pictures
	Text      = "text"           // f32 [samples·text tokens, features]
	Pooled    = "pooled text"    // f32 [samples, features]
	Time      = "time"           // f32 [samples, channels]: sinusoids of the timestep
	Guidance  = "guidance"       // f32 [samples, channels]: sinusoids of the guidance
	Rotary    = "rotary"         // f32 [samples·tokens, size of a head]: cosines, then sines
	ImageRows = "image rows"     // i32 [samples·image tokens]: their rows among all tokens
	TextRows  = "text rows"      // i32 [samples·text tokens]: the same
	Predicted = "predicted rows" // i32 [samples·predicted tokens]: rows of Latents; of Z-Image, of all tokens
	Target    = "target"         // f32 [samples·predicted tokens, channels]
	Weights   = "weights"        // f32 [samples]
)

// Names of axes. The number of samples is fixed for a program (nn.Builder.Size); the
// others are counted for each sample, and set by each run. The axis of all tokens of a
// sample is nn.Tokens; the keys that a token sees are nn.Lo and nn.Hi.
const (
	Samples         = "samples"
	ImageTokens     = "image tokens"
	TextTokens      = "text tokens"
	PredictedTokens = "predicted tokens"
)

// ErrSample is wrapped where a sample is none that the transformer can take.
var ErrSample = errors.New("wrong sample")

// Latent is a picture as an autoencoder has it, normalised as the transformer takes it:
// Values are [Channels, Frames, Height, Width].
type Latent struct {
	Channels, Frames, Height, Width int
	Values                          []float32
}

// Prompt is a text as its encoders have it.
type Prompt struct {
	Features int
	Values   []float32 // [tokens, Features]
	Mask     []bool    // which tokens are real; nil: all
	// Slots are the tokens in whose places controls lie, four tokens of a control in each;
	// nil: none. Architectures read it that have one stream of text and pictures.
	Slots  []bool
	Pooled []float32 // one vector of the whole text, where the architecture reads one
}

// Sample is a picture on its way from noise.
type Sample struct {
	Latent   Latent   // that is denoised: (1 − σ)·picture + σ·noise
	Controls []Latent // pictures that it is made from
	Prompt   Prompt
	Timestep float32 // 1000·σ, of 0 to 1000
	Guidance float32 // what models that were distilled are told
	// Stretch is by how much further apart frames, rows and columns are than in training,
	// where an architecture reads it; 0: they are not.
	Stretch [3]float32
	// Target is what is to be learned, noise − picture, with the weight of the sample in
	// the loss; nil where nothing is.
	Target []float32
	Weight float32
}

// Transformer is the [model.Family] of a diffusion transformer: beside its graph, what
// its graph is given.
type Transformer interface {
	model.Family
	// Space is what latents are like.
	Space() Space
	// Bounds are the sizes of all axes that so many samples take whose latents, controls
	// and number of tokens of text are like those of s; values need not be there.
	Bounds(samples int, s Sample) map[string]int
	// Arrays replaces the arrays of a batch by those of samples, which are as many as the
	// program has been planned for, with latents and controls of one size. Errors: ErrSample.
	Arrays(b *data.Batch, samples []Sample) error
	// Unpack gives the velocity of each sample as [Channels, Frames, Height, Width], of the
	// rows of Velocity for samples whose latents have the size of like.
	Unpack(rows []float32, samples int, like Latent) ([][]float32, error)
}

// Space is what the latents of a transformer are like.
type Space struct {
	Channels int  // of a latent
	Multiple int  // height and width are multiples of it
	Text     int  // features of a token of text
	Pooled   int  // of the vector of the whole text; 0: none is read
	Guidance bool // the transformer was distilled and is told the guidance
	Controls bool // it takes pictures to begin with
	// Unshifted latents are scaled as the autoencoder says, and not shifted.
	Unshifted bool
}
