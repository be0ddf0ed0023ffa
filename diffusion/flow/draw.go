package flow

import "github.com/lorafuse/lorafuse/internal/philox"

// Draw has the random numbers of one sample of one step: functions of a seed, the step and
// the sample, so that a run that is resumed draws what an unbroken one would have drawn.
// Step and sample are below 2³² and 2²⁴.
type Draw struct {
	seed         uint64
	step, sample uint32
}

// NewDraw is the draw of a sample in a step.
func NewDraw(seed uint64, step, sample int) Draw {
	return Draw{seed: seed, step: uint32(step), sample: uint32(sample) & (1<<24 - 1)}
}

// What is drawn. The numbers are the upper eight bits of a stream's, whose others are the
// sample; those that operations of graphs have are far below.
const (
	levelDraw     = 0xF1
	noiseDraw     = 0xF2
	posteriorDraw = 0xF3
)

func (d Draw) stream(what uint32) philox.Stream {
	return philox.NewStream(d.seed, d.step, what<<24|d.sample)
}

// Uniform is of [0, 1), Normal a standard normal number: both for the noise level of the
// sample, which takes one of them.
func (d Draw) Uniform() float32 { return d.stream(levelDraw).Uniform(0) }

// Normal goes with Uniform.
func (d Draw) Normal() float32 { return float32(d.stream(levelDraw).Normal(2)) }

// Noise fills dst with standard normal numbers: the noise of the sample.
func (d Draw) Noise(dst []float32) { fill(d.stream(noiseDraw), dst) }

// Posterior fills dst with standard normal numbers too: those by which a picture is drawn
// of what an autoencoder says of it.
func (d Draw) Posterior(dst []float32) { fill(d.stream(posteriorDraw), dst) }

func fill(s philox.Stream, dst []float32) {
	for i := range dst {
		dst[i] = float32(s.Normal(uint64(i)))
	}
}

// Mix gives dst = (1 − σ)·picture + σ·noise, and target = noise − picture.
func Mix(dst, target, picture, noise []float32, sigma float32) {
	for i, x := range picture {
		dst[i] = float32((1-sigma)*x) + float32(sigma*noise[i])
		target[i] = noise[i] - x
	}
}
