package sample

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The scores equal sequence_bias and repetition_penalty of transformers, to the bit.
func TestBiasAsTransformers(t *testing.T) {
	text, err := os.ReadFile("testdata/bias.json")
	require.NoError(t, err)
	var g struct {
		History []int32
		Cases   []struct {
			Bias           map[int32]float32
			Penalty        float64 `json:"repetition_penalty"`
			Logits, Scores []float32
			Greedy         int32
		}
	}
	require.NoError(t, json.Unmarshal(text, &g))
	require.Len(t, g.Cases, 5)
	for i, c := range g.Cases {
		s := Sampler{Bias: c.Bias, RepetitionPenalty: c.Penalty}
		id, err := s.Next(c.Logits, g.History[:5], g.History[5:])
		require.NoError(t, err)
		assert.Equal(t, c.Greedy, id, "case %d", i)
		assert.Equal(t, c.Scores, s.scores, "case %d", i)
	}
}

// The formula of OpenAI, one term after another: bias first, then the repetition penalty over prompt and answer, then
// the penalties for counts in the answer.
func TestAdjustIsTheFormula(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		logits := rapid.SliceOfN(rapid.Float32Range(-30, 30), 1, 40).Draw(t, "logits")
		ids := rapid.SliceOfN(rapid.Int32Range(-2, 45), 0, 30)
		prompt, answer := ids.Draw(t, "prompt"), ids.Draw(t, "answer")
		within := rapid.Int32Range(0, int32(len(logits)-1))
		penalty := rapid.SampledFrom([]float64{0, 0.3, -2, 2, 0.1, -0.7})
		s := Sampler{
			RepetitionPenalty: rapid.SampledFrom([]float64{0, 1, 1.3, 0.7}).Draw(t, "repetition"),
			FrequencyPenalty:  penalty.Draw(t, "frequency"),
			PresencePenalty:   penalty.Draw(t, "presence"),
			Bias:              rapid.MapOfN(within, rapid.Float32Range(-100, 100), 0, 5).Draw(t, "bias"),
		}
		want := make([]float32, len(logits))
		for id := range want {
			x := logits[id] + s.Bias[int32(id)]
			counts := map[bool]int{}
			for i, h := range append(append([]int32{}, prompt...), answer...) {
				if int(h) == id {
					counts[i >= len(prompt)]++
				}
			}
			if r := float32(s.RepetitionPenalty); r != 0 && counts[false]+counts[true] > 0 {
				if x < 0 {
					x *= r
				} else {
					x /= r
				}
			}
			x -= float32(float32(s.FrequencyPenalty) * float32(counts[true]))
			if counts[true] > 0 {
				x -= float32(s.PresencePenalty)
			}
			want[id] = x
		}
		before := append([]float32(nil), logits...)
		for range 2 {
			require.Equal(t, want, append([]float32(nil), s.adjust(logits, prompt, answer)...), "nothing is left of the first call")
		}
		require.Equal(t, before, logits)
		id, err := s.Next(logits, prompt, answer)
		require.NoError(t, err)
		require.Equal(t, greedy(want), id)
		s.Temperature = 1
		id, err = s.Next(logits, prompt, answer)
		require.NoError(t, err)
		sum := 0.0
		for _, x := range want {
			sum += weight(x, want[id])
		}
		require.InDelta(t, 1/sum, s.Prob(), 1e-6)
	})
}

// The prompt counts only for the repetition penalty and the draw, so its length makes no difference to the other
// penalties.
func TestWhereTheAnswerBegins(t *testing.T) {
	logits := []float32{1, 2, 3, 2.5, 0.5}
	history := []int32{2, 2, 3, 1, 2}
	s := Sampler{Temperature: 1, RepetitionPenalty: 1.2, Seed: 4}
	want, err := s.Next(logits, history, nil)
	require.NoError(t, err)
	for i := range history {
		id, err := s.Next(logits, history[:i], history[i:])
		require.NoError(t, err)
		assert.Equal(t, want, id)
	}
	s = Sampler{FrequencyPenalty: 0.5, PresencePenalty: 0.25}
	for i, want := range []float32{3 - 3*0.5 - 0.25, 3 - 2*0.5 - 0.25, 3 - 0.5 - 0.25, 3 - 0.5 - 0.25, 3 - 0.5 - 0.25, 3} {
		assert.Equal(t, want, s.adjust(logits, history[:i], history[i:])[2], "an answer from token %d", i)
	}
}

func TestAdjustErrors(t *testing.T) {
	logits := []float32{3, 2, 1}
	for want, s := range map[string]Sampler{
		"frequency_penalty is 2.1":              {FrequencyPenalty: 2.1},
		"frequency_penalty is NaN":              {FrequencyPenalty: math.NaN()},
		"presence_penalty is -3":                {PresencePenalty: -3},
		"presence_penalty is +Inf":              {PresencePenalty: math.Inf(1)},
		"token 3, expected ids from 0 to 2":     {Bias: map[int32]float32{3: 1, 9: 1, 1: 1}},
		"token -5, expected ids":                {Bias: map[int32]float32{-5: 1, -1: 2, 7: 1}},
		"token 1 is +Inf, expected a number":    {Bias: map[int32]float32{1: float32(math.Inf(1)), 2: 1}},
		"token 0 is NaN, expected a number":     {Bias: map[int32]float32{0: float32(math.NaN())}},
		"token -1, expected ids from 0 to 2147": {Bias: map[int32]float32{-1: 0}},
	} {
		err := s.Validate()
		if _, beyond := s.Bias[3]; beyond {
			require.NoError(t, err, "ids are bounded by a vocabulary alone")
			_, err = s.Next(logits, nil, nil)
		}
		assert.ErrorIs(t, err, ErrSetting, want)
		assert.ErrorContains(t, err, want)
		_, err = s.Next(logits, nil, nil)
		assert.ErrorIs(t, err, ErrSetting, want)
	}
	// Values outside the range of float32 are found after the adjustments.
	for _, s := range []Sampler{
		{Bias: map[int32]float32{0: math.MaxFloat32}}, {RepetitionPenalty: 1e-40}, {Temperature: 1, TopP: 0.5, RepetitionPenalty: 1e-40},
	} {
		_, err := s.Next([]float32{math.MaxFloat32, 2}, []int32{0}, nil)
		assert.ErrorIs(t, err, ErrLogits)
		assert.ErrorContains(t, err, "token 0 (+Inf)")
	}
}
