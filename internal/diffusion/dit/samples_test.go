package dit_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
)

// randomSample is a sample with so many tokens of text, of a height and a width of tokens,
// and with controls of such.
func randomSample(r *rand.Rand, s dit.Space, tokens int, sizes ...[2]int) dit.Sample {
	numbers := func(n int) []float32 {
		out := make([]float32, n)
		for i := range out {
			out[i] = float32(r.NormFloat64())
		}
		return out
	}
	latent := func(size [2]int) dit.Latent {
		l := dit.Latent{Channels: s.Channels, Frames: 1, Height: s.Multiple * size[0], Width: s.Multiple * size[1]}
		l.Values = numbers(l.Channels * l.Height * l.Width)
		return l
	}
	x := dit.Sample{Latent: latent(sizes[0]), Timestep: 1000 * r.Float32(), Guidance: 5 * r.Float32(), Weight: 1}
	for _, size := range sizes[1:] {
		x.Controls = append(x.Controls, latent(size))
	}
	x.Prompt = dit.Prompt{Features: s.Text, Values: numbers(s.Text * tokens), Pooled: numbers(s.Pooled)}
	x.Target = numbers(len(x.Latent.Values))
	return x
}

// The velocity of a sample depends neither on its company, nor on how much padding there
// is behind its text.
func TestSamplesAreApart(t *testing.T) {
	for _, name := range goldens {
		m, f := open(t, name)
		for seed := range uint64(6) {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 1))
				size := func() [2]int { return [2]int{1 + r.IntN(4), 1 + r.IntN(4)} }
				sizes := [][2]int{size()}
				for range r.IntN(3) {
					sizes = append(sizes, size()) // of controls
				}
				var samples []dit.Sample
				for range 2 + r.IntN(2) {
					s := randomSample(r, f.Space(), 1+r.IntN(9), sizes...)
					for range len(s.Prompt.Values) / s.Prompt.Features {
						s.Prompt.Mask = append(s.Prompt.Mask, r.IntN(3) > 0)
					}
					samples = append(samples, s)
				}
				together := run(t, m, nil, samples)
				for i, s := range samples {
					if _, masks := f.(*dit.QwenImage); masks {
						s.Prompt = padded(s.Prompt, r.IntN(6))
					}
					requireNear(t, part(together, len(samples), i), run(t, m, nil, []dit.Sample{s}), 1, 2e-6)
				}
			})
		}
	}
}

// padded has so many tokens more, which are not to be seen.
func padded(p dit.Prompt, n int) dit.Prompt {
	p.Mask = append(slices.Clone(p.Mask), make([]bool, n)...)
	p.Values = append(slices.Clone(p.Values), slices.Repeat([]float32{1e3}, n*p.Features)...)
	return p
}

// A sample of no weight counts for nothing, and one of weight 2 twice.
func TestWeights(t *testing.T) {
	g := readGolden(t, "qwenimage")
	_, f := open(t, g.name)
	var b data.Batch
	g.samples[0].Weight, g.samples[1].Weight = 0, 2
	require.NoError(t, f.Arrays(&b, g.samples))
	require.Equal(t, 1, b.LossTokens)
	n := float32(len(g.samples[0].Target))
	require.Equal(t, []float32{0, 2 / n}, array(t, &b, dit.Weights))
	g.samples[1].Target = nil
	require.NoError(t, f.Arrays(&b, g.samples))
	require.Equal(t, []float32{0, 0}, array(t, &b, dit.Weights))
	require.Zero(t, b.LossTokens)
}

// Unpack undoes what Arrays does with a latent.
func TestUnpack(t *testing.T) {
	g := readGolden(t, "qwenimage-edit")
	_, f := open(t, g.name)
	var b data.Batch
	require.NoError(t, f.Arrays(&b, g.samples))
	rows := array(t, &b, dit.Target)
	like := g.samples[0].Latent
	got, err := f.Unpack(rows, len(g.samples), like)
	require.NoError(t, err)
	for i, s := range g.samples {
		require.Equal(t, s.Target, got[i])
	}
	_, err = f.Unpack(rows[1:], len(g.samples), like)
	require.ErrorIs(t, err, dit.ErrSample)
}

func TestWrongSamples(t *testing.T) {
	g := readGolden(t, "flux")
	_, f := open(t, g.name)
	for name, x := range map[string]struct {
		change func(s *dit.Sample)
		want   string
	}{
		"channels":       {func(s *dit.Sample) { s.Latent.Channels = 3 }, "latent: found 3 channels, expected 4"},
		"odd size":       {func(s *dit.Sample) { s.Latent.Height = 7 }, "latent: found 7×8, expected multiples of 2"},
		"no size":        {func(s *dit.Sample) { s.Latent.Width = 0 }, "latent: found 1 frames of 8×0, expected 1 or more of each"},
		"another size":   {func(s *dit.Sample) { s.Latent.Height = 6 }, "latent: found 1 frames of 6×8, expected 1 of 8×8 as the first sample has"},
		"values":         {func(s *dit.Sample) { s.Latent.Values = nil }, "latent: found 0 values, expected 256 for 4×1×8×8"},
		"target":         {func(s *dit.Sample) { s.Target = s.Target[1:] }, "target: found 255 elements, expected 256 as the latent has"},
		"controls":       {func(s *dit.Sample) { s.Controls = []dit.Latent{s.Latent} }, "found 1 controls, expected 0 as the first sample has"},
		"features":       {func(s *dit.Sample) { s.Prompt.Features = 31 }, "text: found 31 features of a token, expected 32"},
		"no text":        {func(s *dit.Sample) { s.Prompt.Values = nil }, "text: found 0 values, expected 32 for each of 1 token or more"},
		"parts of token": {func(s *dit.Sample) { s.Prompt.Values = s.Prompt.Values[1:] }, "text: found 223 values, expected 32 for each of 1 token or more"},
		"mask":           {func(s *dit.Sample) { s.Prompt.Mask = []bool{true} }, "text: found a mask of 1 tokens, expected 7"},
		"pooled":         {func(s *dit.Sample) { s.Prompt.Pooled = nil }, "text: found 0 pooled features, expected 24"},
	} {
		t.Run(name, func(t *testing.T) {
			samples := slices.Clone(g.samples)
			x.change(&samples[1])
			var b data.Batch
			err := f.Arrays(&b, samples)
			require.ErrorIs(t, err, dit.ErrSample)
			require.EqualError(t, err, fmt.Sprintf("dit: wrong sample: sample 1: %s", x.want))
		})
	}
	var b data.Batch
	require.EqualError(t, f.Arrays(&b, nil), "dit: wrong sample: found none, expected one at least")
	frames := g.samples[0]
	frames.Latent.Frames, frames.Latent.Height = 2, 4
	require.EqualError(t, f.Arrays(&b, []dit.Sample{{Latent: frames.Latent, Prompt: frames.Prompt}}), "dit: wrong sample: sample 0: found 2 frames, expected 1")
}
