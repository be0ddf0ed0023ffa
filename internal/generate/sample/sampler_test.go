package sample_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/internal/generate/sample"
)

var (
	inf = float32(math.Inf(1))
	nan = float32(math.NaN())
)

func next(t *testing.T, s *sample.Sampler, logits []float32, history ...int32) (int32, float32) {
	t.Helper()
	before := append([]float32(nil), logits...)
	id, err := s.Next(logits, history, nil)
	require.NoError(t, err)
	require.Equal(t, before, logits, "the logits are the caller's")
	return id, s.Prob()
}

func TestGreedy(t *testing.T) {
	var s sample.Sampler
	id, prob := next(t, &s, []float32{1, 3, 3, -inf})
	assert.EqualValues(t, 1, id, "the lowest id of equal ones")
	assert.InDelta(t, 1/(2+math.Exp(-2)), prob, 1e-6)

	// By hand: 3/2 = 1.5 and -1·2 = -2 after a penalty of 2.
	s.RepetitionPenalty = 2
	id, _ = next(t, &s, []float32{2, 3, -1}, 1)
	assert.EqualValues(t, 0, id)
	id, _ = next(t, &s, []float32{-1.5, -9, -1}, 2)
	assert.EqualValues(t, 0, id, "a negative logit is made smaller")
	id, prob = next(t, &s, []float32{3.1, 4, -1}, 1, 1, 0, 0, 0)
	assert.EqualValues(t, 1, id, "once per token, not once per occurrence")
	assert.InDelta(t, 1/(1+math.Exp(-0.45)+math.Exp(-3)), prob, 1e-6)
	id, _ = next(t, &s, []float32{2, 3}, -1, 2, 99)
	assert.EqualValues(t, 1, id, "ids outside the vocabulary")
}

func TestFiltersByHand(t *testing.T) {
	// Probabilities 1/2, 1/4, 1/8, 1/16, 1/16 exactly.
	logits := make([]float32, 5)
	for i, p := range []float64{4, 8, 2, 1, 1} {
		logits[i] = float32(math.Log(p / 16))
	}
	for _, c := range []struct {
		name string
		s    sample.Sampler
		want map[int32]float64
	}{
		{"all", sample.Sampler{}, map[int32]float64{0: .25, 1: .5, 2: .125, 3: .0625, 4: .0625}},
		{"top-k", sample.Sampler{TopK: 2}, map[int32]float64{0: 1. / 3, 1: 2. / 3}},
		{"top-k keeps equals", sample.Sampler{TopK: 4}, map[int32]float64{0: .25, 1: .5, 2: .125, 3: .0625, 4: .0625}},
		{"top-p on an edge", sample.Sampler{TopP: 0.75}, map[int32]float64{0: 1. / 3, 1: 2. / 3}},
		{"top-p over it", sample.Sampler{TopP: 0.76}, map[int32]float64{0: 2. / 7, 1: 4. / 7, 2: 1. / 7}},
		{"top-p keeps the lower id", sample.Sampler{TopP: 0.9}, map[int32]float64{0: 4. / 15, 1: 8. / 15, 2: 2. / 15, 3: 1. / 15}},
		{"min-p", sample.Sampler{MinP: 0.2}, map[int32]float64{0: 2. / 7, 1: 4. / 7, 2: 1. / 7}},
		{"min-p 1", sample.Sampler{MinP: 1}, map[int32]float64{1: 1}},
		{"top-k before top-p", sample.Sampler{TopK: 2, TopP: 0.6}, map[int32]float64{1: 1}},
		{"temperature first", sample.Sampler{Temperature: 0.5, TopP: 0.8}, map[int32]float64{0: .2, 1: .8}},
		{"tiny temperature", sample.Sampler{Temperature: 1e-42, TopP: 0.8, MinP: 0.1}, map[int32]float64{1: 1}},
	} {
		if c.s.Temperature == 0 {
			c.s.Temperature = 1
		}
		seen := map[int32]float64{}
		for seed := range uint64(600) {
			c.s.Seed = seed
			id, prob := next(t, &c.s, logits)
			seen[id] = float64(prob)
		}
		require.Len(t, seen, len(c.want), c.name)
		for id, p := range c.want {
			assert.InDelta(t, p, seen[id], 1e-6, "%s, token %d", c.name, id)
		}
	}
}

// If the less likely tokens have exactly 1 - top_p together, they are dropped.
func TestTopPOnItsEdge(t *testing.T) {
	for top, want := range map[float64]int{0.25: 1, 0.26: 2, 0.5: 2, 0.51: 3, 0.75: 3, 0.76: 4} {
		seen := map[int32]bool{}
		for seed := range uint64(200) {
			s := sample.Sampler{Temperature: 1, TopP: top, Seed: seed}
			id, prob := next(t, &s, make([]float32, 4)) // 1/4 each
			seen[id] = true
			assert.InDelta(t, 1/float64(want), prob, 1e-7)
			assert.Less(t, int(id), want, "equal ones stay by id")
		}
		assert.Len(t, seen, want)
	}
}

// The histogram of many draws fits the distribution: chi-square with 7 degrees
// of freedom, 99.9 % quantile 24.3, over seeds, over positions and over
// sequences.
func TestHistogram(t *testing.T) {
	logits := []float32{0.3, -1, 2, 0, 1.1, -0.4, 0.7, 1.9}
	const temperature, n = 0.8, 40000
	var want [8]float64
	var sum float64
	for i, x := range logits {
		want[i] = math.Exp(float64(x) / temperature)
		sum += want[i]
	}
	history := make([]int32, n)
	for name, draw := range map[string]func(s *sample.Sampler, i int) (int32, error){
		"seed": func(s *sample.Sampler, i int) (int32, error) {
			s.Seed = uint64(i)
			return s.Next(logits, nil, nil)
		},
		"position": func(s *sample.Sampler, i int) (int32, error) { return s.Next(logits, history[:i], nil) },
		"sequence": func(s *sample.Sampler, i int) (int32, error) {
			s.Sequence = uint64(i) << 20
			return s.Next(logits, nil, nil)
		},
	} {
		var count [8]float64
		s := sample.Sampler{Temperature: temperature, Seed: 7}
		for i := range n {
			id, err := draw(&s, i)
			require.NoError(t, err)
			require.InDelta(t, want[id]/sum, s.Prob(), 1e-6)
			count[id]++
		}
		var chi2 float64
		for i := range count {
			expected := n * want[i] / sum
			chi2 += (count[i] - expected) * (count[i] - expected) / expected
		}
		assert.Less(t, chi2, 24.3, name)
	}
}

// These draws are part of the contract: text generated with a seed stays the
// same from release to release and on every machine.
func TestDrawsStayTheSame(t *testing.T) {
	logits := make([]float32, 1000)
	s := sample.Sampler{Temperature: 1, Seed: 42}
	var history []int32
	for range 8 {
		id, _ := next(t, &s, logits, history...)
		history = append(history, id)
	}
	assert.Equal(t, []int32{468, 327, 658, 670, 839, 293, 743, 408}, history)
	s.Sequence = 1
	id, _ := next(t, &s, logits)
	assert.NotEqual(t, history[0], id)
}

func TestUnusableLogits(t *testing.T) {
	for _, c := range []struct {
		logits []float32
		want   string
	}{
		{nil, "there are none"},
		{[]float32{nan, nan}, "2 of 2 are NaN or +Inf"},
		{[]float32{1, nan, 2}, "1 of 3 are NaN or +Inf, the first is that of token 1 (NaN)"},
		{[]float32{1, inf}, "token 1 (+Inf)"},
		{[]float32{-inf, -inf}, "all 2 are -Inf"},
	} {
		for _, temperature := range []float64{0, 1} {
			s := sample.Sampler{Temperature: temperature}
			_, err := s.Next(c.logits, nil, nil)
			assert.ErrorIs(t, err, sample.ErrLogits)
			assert.ErrorContains(t, err, c.want)
		}
	}
}

func TestSettings(t *testing.T) {
	for want, s := range map[string]sample.Sampler{
		"temperature is -1":          {Temperature: -1},
		"temperature is NaN":         {Temperature: math.NaN()},
		"top_k is -3":                {TopK: -3},
		"top_p is 1.5":               {TopP: 1.5},
		"min_p is -0.1":              {MinP: -0.1},
		"repetition_penalty is -2":   {RepetitionPenalty: -2},
		"repetition_penalty is +Inf": {RepetitionPenalty: math.Inf(1)},
	} {
		_, err := s.Next([]float32{1}, nil, nil)
		assert.ErrorIs(t, err, sample.ErrSetting)
		assert.ErrorContains(t, err, want)
	}
}

func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		logits := rapid.SliceOfN(rapid.Float32Range(-30, 30), 1, 60).Draw(t, "logits")
		history := rapid.SliceOf(rapid.Int32Range(-2, 70)).Draw(t, "history")
		s := sample.Sampler{
			Temperature:       rapid.SampledFrom([]float64{0, 1e-3, 0.5, 1, 3}).Draw(t, "temperature"),
			TopK:              rapid.IntRange(0, 70).Draw(t, "top_k"),
			TopP:              rapid.Float64Range(0, 1).Draw(t, "top_p"),
			MinP:              rapid.Float64Range(0, 1).Draw(t, "min_p"),
			RepetitionPenalty: rapid.Float64Range(0.3, 3).Draw(t, "penalty"),
			Seed:              rapid.Uint64().Draw(t, "seed"),
		}
		id, err := s.Next(logits, history, nil)
		require.NoError(t, err)
		prob := s.Prob()
		require.True(t, id >= 0 && int(id) < len(logits))
		require.True(t, prob > 0 && prob <= 1, "%v", prob)
		again, err := (&s).Next(logits, history, nil)
		require.NoError(t, err)
		require.Equal(t, id, again)

		greedy := sample.Sampler{RepetitionPenalty: s.RepetitionPenalty}
		want, err := greedy.Next(logits, history, nil)
		require.NoError(t, err)
		one := s
		one.Temperature, one.TopK, one.TopP, one.MinP = 1, 0, 1e-9, 0
		got, err := one.Next(logits, history, nil)
		require.NoError(t, err)
		require.Equal(t, want, got, "top-p near 0 is greedy")
	})
}

func TestNoAllocations(t *testing.T) {
	logits := make([]float32, 5000)
	for i := range logits {
		logits[i] = float32(i % 97)
	}
	s := sample.Sampler{
		Temperature: 0.8, TopK: 50, TopP: 0.9, MinP: 0.01, RepetitionPenalty: 1.1,
		FrequencyPenalty: 0.3, PresencePenalty: -0.2, Bias: map[int32]float32{4: 1, 99: -100},
	}
	history := []int32{1, 2, 3, 4, 4}
	_, err := s.Next(logits, history, history)
	require.NoError(t, err)
	assert.Zero(t, testing.AllocsPerRun(5, func() { s.Next(logits, history, history) }))
}

func BenchmarkNext(b *testing.B) {
	logits := make([]float32, 151936)
	for i := range logits {
		logits[i] = float32(math.Sin(float64(i)) * 12)
	}
	for name, s := range map[string]sample.Sampler{
		"greedy": {}, "temperature": {Temperature: 1}, "topk": {Temperature: 1, TopK: 50, TopP: 0.9}, "topp": {Temperature: 1, TopP: 0.9},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s.Next(logits, nil, nil)
			}
		})
	}
}

func ExampleSampler() {
	logits := []float32{1, 4, 3.5, -2}
	greedy := sample.Sampler{}
	id, err := greedy.Next(logits, nil, nil)
	fmt.Println(id, err)

	s := sample.Sampler{Temperature: 0.8, TopK: 2, Seed: 1}
	counts := make([]int, len(logits))
	history := make([]int32, 1000)
	for position := range history {
		id, _ := s.Next(logits, history[:position], nil)
		counts[id]++
	}
	fmt.Println(counts[0], counts[1] > counts[2], counts[2] > 0, counts[3])
	// Output:
	// 1 <nil>
	// 0 true true 0
}
