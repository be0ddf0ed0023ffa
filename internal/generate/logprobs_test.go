package generate_test

import (
	"math"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/generate/sample"
)

// The log-probabilities are those of a plain log-softmax, and the top is that of a sort.
func TestLogprobs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// A few values only, so that some are equal.
		value := rapid.OneOf(rapid.Float32Range(-20, 20), rapid.SampledFrom([]float32{0, 1, 2, float32(math.Inf(-1))}))
		logits := append(rapid.SliceOfN(value, 0, 50).Draw(t, "logits"), 0.5)
		id := rapid.Int32Range(0, int32(len(logits)-1)).Draw(t, "id")
		top := rapid.IntRange(-1, len(logits)+3).Draw(t, "top")
		sum := 0.0
		for _, x := range logits {
			sum += math.Exp(float64(x))
		}
		want := make([]generate.Logprob, len(logits))
		for i, x := range logits {
			want[i] = generate.Logprob{ID: int32(i), Logprob: float32(float64(x) - math.Log(sum))}
		}
		before := slices.Clone(logits)
		got, err := generate.NewLogprobs(logits, id, top)
		require.NoError(t, err)
		require.Equal(t, before, logits)
		require.Equal(t, id, got.ID)
		near(t, want[id].Logprob, got.Logprob)
		sort.SliceStable(want, func(i, j int) bool { return logits[want[i].ID] > logits[want[j].ID] })
		require.Len(t, got.Top, min(max(top, 0), len(logits)))
		for i, x := range got.Top {
			require.Equal(t, want[i].ID, x.ID)
			near(t, want[i].Logprob, x.Logprob)
			if x.ID == id {
				require.Equal(t, got.Logprob, x.Logprob)
			}
		}
	})
}

// near allows for a rounding of float64 in another order before that to float32.
func near(t require.TestingT, want, got float32) {
	if !math.IsInf(float64(want), -1) || want != got {
		require.InDelta(t, want, got, 4e-6)
	}
}

func TestLogprobsAtTheEnds(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		logits []float32
		want   []float32
	}{
		{[]float32{7}, []float32{0}},
		{[]float32{0, 0}, []float32{-math.Ln2, -math.Ln2}},
		{[]float32{-1e30, 1e30}, []float32{-2e30, 0}},
		{[]float32{math.MaxFloat32, -math.MaxFloat32}, []float32{0, -inf}},
		{[]float32{-1000, -1000, -inf}, []float32{-math.Ln2, -math.Ln2, -inf}},
		{[]float32{1000, 999}, []float32{-0.3132616875, -1.3132616875}},
	} {
		for id, want := range c.want {
			l, err := generate.NewLogprobs(c.logits, int32(id), 1)
			require.NoError(t, err)
			if math.IsInf(float64(want), 0) || want == 0 {
				assert.Equal(t, want, l.Logprob, "%v, token %d", c.logits, id)
			} else { // the vector kernels sum exponentials in float32
				assert.InEpsilon(t, want, l.Logprob, 1e-7, "%v, token %d", c.logits, id)
			}
			assert.EqualValues(t, slices.Index(c.logits, slices.Max(c.logits)), l.Top[0].ID)
		}
	}
	for _, logits := range [][]float32{nil, {nan}, {1, inf}, {-inf, -inf}} {
		_, err := generate.NewLogprobs(logits, 0, 3)
		require.ErrorIs(t, err, sample.ErrLogits)
	}
	for _, id := range []int32{-1, 2, math.MaxInt32} {
		_, err := generate.NewLogprobs([]float32{1, 2}, id, 3)
		require.ErrorIs(t, err, generate.ErrToken)
	}
}

// Log-probabilities are of the model's own logits, whatever chooses among them.
func TestLogprobsAreTheModels(t *testing.T) {
	logits := []float32{1, 4, 2, 3}
	o := generate.GenerateOptions{
		Logprobs: true, TopLogprobs: 2, MinNewTokens: 1, EOS: []int32{1},
		Sampler: sample.Sampler{Bias: map[int32]float32{2: 9}, RepetitionPenalty: 2, PresencePenalty: 2, Temperature: 0.1, TopK: 1},
	}
	a, err := generate.NewAnswer(4, nil, 3, []int32{3}, o)
	require.NoError(t, err)
	x, err := a.Next(logits)
	require.NoError(t, err)
	require.EqualValues(t, 2, x.ID)
	want, err := generate.NewLogprobs(logits, 2, 2)
	require.NoError(t, err)
	assert.Equal(t, want, x.Logprobs)
	assert.EqualValues(t, 1, x.Logprobs.Top[0].ID)
	assert.EqualValues(t, 3, x.Logprobs.Top[1].ID)
	assert.InDelta(t, 1, x.Prob(), 1e-6, "which is what it was chosen with")
}
