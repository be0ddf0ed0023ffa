package sample_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/dev/draws"
	"github.com/lorafuse/lorafuse/internal/generate/sample"
)

// candidatesOf returns the k largest logits, as a device selects them. The device computes the sum with a relative error.
func candidatesOf(logits []float32, k int, temperature float32, wrong float64) sample.Candidates {
	c := sample.Candidates{Vocab: len(logits), Temperature: temperature}
	for i := range logits {
		c.IDs = append(c.IDs, int32(i))
	}
	slices.SortStableFunc(c.IDs, func(a, b int32) int { return cmp.Compare(logits[b], logits[a]) })
	c.IDs = c.IDs[:k]
	for _, id := range c.IDs {
		c.Logits = append(c.Logits, logits[id])
	}
	sum := 0.0
	for _, x := range logits {
		sum += math.Exp(float64(x/temperature - c.Logits[0]/temperature))
	}
	c.LogMass = float32(math.Log(sum * (1 + wrong)))
	return c
}

// What is chosen among candidates is what is chosen from all logits, for any settings, and with any rounding of the sum.
func TestAmong(t *testing.T) {
	among, all := 0, 0
	draws.Check(t, 500, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "logits"), 1))
		logits := make([]float32, rapid.SampledFrom([]int{1, 7, 40, 3000}).Draw(t, "vocabulary"))
		scale, step := rapid.SampledFrom([]float64{0.1, 1, 4, 30, 1e30}).Draw(t, "scale"), rapid.SampledFrom([]float64{0, 0.5}).Draw(t, "step")
		for i := range logits {
			x := r.NormFloat64() * scale
			if step > 0 { // many are equal
				x = math.Round(x/step) * step
			}
			logits[i] = float32(x)
		}
		s := sample.Sampler{
			Temperature: rapid.SampledFrom([]float64{0, 1e-30, 0.1, 0.7, 1, 3}).Draw(t, "temperature"),
			TopK:        rapid.SampledFrom([]int{0, 0, 1, 5, 15, 16, 64, 5000}).Draw(t, "top k"),
			TopP:        rapid.SampledFrom([]float64{0, 1, 0.001, 0.5, 0.9, 0.999}).Draw(t, "top p"),
			MinP:        rapid.SampledFrom([]float64{0, 0, 0.05, 1}).Draw(t, "min p"),
			Seed:        rapid.Uint64().Draw(t, "seed"),
		}
		c := candidatesOf(logits, min(16, len(logits)), max(float32(s.Temperature), 1e-30), rapid.Float64Range(-9e-5, 9e-5).Draw(t, "error"))
		same := s
		id, ok := same.NextAmong(c, 5)
		all++
		if !ok {
			return
		}
		among++
		want, err := s.Next(logits, []int32{1, 2, 3}, []int32{4, 5})
		require.NoError(t, err)
		require.Equal(t, want, id)
		if s.Temperature > 0 {
			require.Equal(t, s.Prob(), same.Prob())
		}
	})
	assert.Greater(t, among, all/4)
}

// Settings and logits that need more than the largest logits.
func TestNeedsLogits(t *testing.T) {
	logits := make([]float32, 100)
	for i := range logits {
		logits[i] = float32(i%50) / 4
	}
	for i, s := range []sample.Sampler{
		{RepetitionPenalty: 1.1}, {FrequencyPenalty: 0.1}, {PresencePenalty: -0.1}, {Bias: map[int32]float32{3: 1}},
		{Temperature: 1}, {Temperature: 1, TopP: 1}, {Temperature: 1, MinP: 0.1}, {Temperature: 1, TopK: 16}, {Temperature: 1, TopK: 200, TopP: 0.5},
	} {
		assert.True(t, s.NeedsLogits(16, 100), i)
		_, ok := s.NextAmong(candidatesOf(logits, 16, 1, 0), 0)
		assert.False(t, ok, i)
	}
	for i, s := range []sample.Sampler{{}, {TopP: 0.1, TopK: 99}, {Temperature: 1, TopK: 15, MinP: 0.1}, {Temperature: 1, TopP: 0.99}} {
		assert.False(t, s.NeedsLogits(16, 100), i)
	}
	for name, change := range map[string]func(c *sample.Candidates, s *sample.Sampler){
		"NaN":                    func(c *sample.Candidates, _ *sample.Sampler) { c.Logits[0] = float32(math.NaN()) },
		"+Inf":                   func(c *sample.Candidates, _ *sample.Sampler) { c.Logits[0] = float32(math.Inf(1)) },
		"-Inf":                   func(c *sample.Candidates, _ *sample.Sampler) { c.Logits[0] = float32(math.Inf(-1)) },
		"the last is among k":    func(_ *sample.Candidates, s *sample.Sampler) { s.TopK = 15 },
		"too little mass":        func(_ *sample.Candidates, s *sample.Sampler) { s.TopP = 0.9999 },
		"of another temperature": func(c *sample.Candidates, _ *sample.Sampler) { c.Temperature = 2 },
		"the sum is NaN":         func(c *sample.Candidates, _ *sample.Sampler) { c.LogMass = float32(math.NaN()) },
	} {
		c, s := candidatesOf(logits, 16, 1, 0), sample.Sampler{Temperature: 1, TopP: 0.3}
		_, ok := s.NextAmong(c, 0)
		require.True(t, ok)
		change(&c, &s)
		_, ok = s.NextAmong(c, 0)
		assert.False(t, ok, name)
	}
	c := candidatesOf(logits, 16, 1, 0)
	edge := sample.Sampler{Temperature: 1}
	sum := math.Exp(float64(c.LogMass))
	edge.TopP = 2 / sum // two tokens have this probability, up to rounding
	_, ok := edge.NextAmong(c, 0)
	assert.False(t, ok, "rounding decides")
}
