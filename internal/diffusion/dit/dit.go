// Package dit builds diffusion transformers. Each architecture of diffusers has a file and is
// registered with package model by its class name. A transformer reads the tokens of a noisy
// latent, of a prompt and perhaps of control images, and predicts the velocity from image to
// noise.
//
// Rows are tokens. The samples of a batch are concatenated and have the same layout: the same
// numbers of image tokens and of text positions. Text padding attends to nothing and is
// masked out. Each run sets the numbers of tokens, so one program serves all image sizes up
// to its bounds.
package dit

import (
	"errors"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/model"
)

// FlowMatching is the training task of diffusion transformers. Its loss is Σ over samples of
// weight · mean of (velocity − target)² over the elements of the sample, with the inputs
// Target and Weights (Lipman et al. 2022, arXiv 2210.02747).
const FlowMatching model.Task = "flow matching"

// Velocity is the output of diffusion transformers, f32 [samples·predicted tokens, channels]:
// noise − image, at the tokens listed in the input Predicted.
const Velocity = "velocity"

// Names of inputs. An architecture declares only the inputs that it reads, and may declare
// others.
const (
	Latents   = "latents"        // f32 [samples·image tokens, channels]: noisy latents, then control images
	Text      = "text"           // f32 [samples·text tokens, features]
	Pooled    = "pooled text"    // f32 [samples, features]
	Time      = "time"           // f32 [samples, channels]: sinusoids of the timestep
	Guidance  = "guidance"       // f32 [samples, channels]: sinusoids of the guidance
	Rotary    = "rotary"         // f32 [samples·tokens, head size]: cosines, then sines
	ImageRows = "image rows"     // i32 [samples·image tokens]: rows among all tokens
	TextRows  = "text rows"      // i32 [samples·text tokens]: rows among all tokens
	Predicted = "predicted rows" // i32 [samples·predicted tokens]: rows of Latents; for Z-Image, of all tokens
	Target    = "target"         // f32 [samples·predicted tokens, channels]
	Weights   = "weights"        // f32 [samples]
)

// Names of axes. A program has a fixed number of samples (nn.Builder.Size); each run sets the
// other axes, which count per sample. The axis of all tokens of a sample is nn.Tokens; nn.KeyStart
// and nn.KeyEnd are the bounds of the keys to which a token attends.
const (
	Samples         = "samples"
	ImageTokens     = "image tokens"
	TextTokens      = "text tokens"
	PredictedTokens = "predicted tokens"
)

// ErrSample is wrapped if the transformer cannot process a sample.
var ErrSample = errors.New("wrong sample")

// Latent is an encoded image, normalized for the transformer. Values have the shape
// [Channels, Frames, Height, Width].
type Latent struct {
	Channels, Frames, Height, Width int
	Values                          []float32
}

// Prompt is an encoded prompt.
type Prompt struct {
	Features int
	Values   []float32 // [tokens, Features]
	Mask     []bool    // reports the real tokens; nil means all
	// Slots reports the tokens that control images replace, four control tokens per slot.
	// Nil means none. Only architectures with a single stream of text and image tokens read
	// it.
	Slots  []bool
	Pooled []float32 // pooled embedding, if the architecture reads one
}

// Sample is a noisy latent with its conditions.
type Sample struct {
	Latent   Latent   // (1 − σ)·image + σ·noise
	Controls []Latent // control images
	Prompt   Prompt
	Timestep float32 // 1000·σ, from 0 to 1000
	Guidance float32 // guidance embedding of distilled models
	// Stretch holds scale factors for the positions of frames, rows and columns relative to
	// training. Not all architectures read it. Zero means 1.
	Stretch [3]float32
	// Target is the training target, noise − image, and Weight the weight of the sample in
	// the loss. A nil Target means that the sample is not trained on.
	Target []float32
	Weight float32
}

// Transformer is the [model.Family] of a diffusion transformer. It also converts samples to
// the inputs of its graph.
type Transformer interface {
	model.Family
	// Space returns the layout of latents and prompts.
	Space() Space
	// Bounds returns the sizes of all axes for the given number of samples like s. It uses
	// the sizes of the latent, the controls and the prompt; values may be missing.
	Bounds(samples int, s Sample) map[string]int
	// Arrays replaces the arrays of a batch with the inputs for samples. Their number must
	// be the one for which the program was planned, and their latents and controls must have
	// equal sizes. Errors: ErrSample.
	Arrays(b *data.Batch, samples []Sample) error
	// Unpack converts the rows of Velocity to the velocity of each sample, [Channels,
	// Frames, Height, Width]. The latents of the samples have the size of like.
	Unpack(rows []float32, samples int, like Latent) ([][]float32, error)
}

// Space is the layout of the latents and prompts of a transformer.
type Space struct {
	Channels int  // of a latent
	Multiple int  // divisor of height and width
	Text     int  // features of a text token
	Pooled   int  // features of the pooled embedding; zero means none
	Guidance bool // distilled, with a guidance embedding
	Controls bool // supports control images
	// Unshifted latents are scaled by the autoencoder's factor, but not shifted.
	Unshifted bool
}
