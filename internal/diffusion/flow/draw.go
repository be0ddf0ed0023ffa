package flow

import "github.com/lorafuse/lorafuse/internal/philox"

// Draw generates the random numbers of one sample in one step. They depend only on the seed,
// the step and the sample, so that a resumed run draws the same numbers as an uninterrupted
// one. The step must be below 2³² and the sample below 2²⁴.
type Draw struct {
	seed         uint64
	step, sample uint32
}

// NewDraw returns the random numbers of a sample in a step.
func NewDraw(seed uint64, step, sample int) Draw {
	return Draw{seed: seed, step: uint32(step), sample: uint32(sample) & (1<<24 - 1)}
}

// Kinds of random numbers, in the upper eight bits of the stream number; the sample is in the
// lower bits. Graph operations use far lower streams.
const (
	levelDraw     = 0xF1
	noiseDraw     = 0xF2
	posteriorDraw = 0xF3
)

func (d Draw) stream(what uint32) philox.Stream {
	return philox.NewStream(d.seed, d.step, what<<24|d.sample)
}

// Uniform returns a number in [0, 1), and Normal a standard normal one. Both are for the
// noise level of the sample, which uses one of them.
func (d Draw) Uniform() float32 { return d.stream(levelDraw).Uniform(0) }

// Normal returns a standard normal number; see Uniform.
func (d Draw) Normal() float32 { return float32(d.stream(levelDraw).Normal(2)) }

// Noise fills dst with standard normal numbers, the noise of the sample.
func (d Draw) Noise(dst []float32) { fill(d.stream(noiseDraw), dst) }

// Posterior fills dst with standard normal numbers for sampling a latent from the
// distribution of the autoencoder.
func (d Draw) Posterior(dst []float32) { fill(d.stream(posteriorDraw), dst) }

func fill(s philox.Stream, dst []float32) {
	for i := range dst {
		dst[i] = float32(s.Normal(uint64(i)))
	}
}

// Mix replaces the picture x by (1 − σ)·x + σ·noise, and noise by the target, noise − x.
func Mix(x, noise []float32, sigma float32) {
	for i, v := range x {
		x[i] = float32((1-sigma)*v) + float32(sigma*noise[i])
		noise[i] -= v
	}
}
