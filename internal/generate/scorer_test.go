package generate_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// Rows give the same alone, together, and when they do not fit into one run.
func TestScorerRows(t *testing.T) {
	for _, dir := range []string{llama, "../../testdata/extra/mistral-window", "../../testdata/extra/dynamic"} {
		dev, m := open(t, dir)
		rows := [][]int32{tokens(m, 9), tokens(m, 1), tokens(m, 20), tokens(m, 17)}
		all, few := scorer(t, dev, m, nil, 64), scorer(t, dev, m, nil, 20)
		together, err := all.Logits(ctx, rows)
		require.NoError(t, err)
		apart, err := few.Logits(ctx, rows)
		require.NoError(t, err)
		hidden, err := all.Hidden(ctx, rows)
		require.NoError(t, err)
		require.Len(t, hidden, m.Config.Layers+1)
		at := 0
		for _, ids := range rows {
			alone, err := all.Logits(ctx, [][]int32{ids})
			require.NoError(t, err)
			from, to := at*m.Config.VocabSize, (at+len(ids))*m.Config.VocabSize
			requireClose(t, alone, together[from:to], dir)
			requireClose(t, alone, apart[from:to], dir)
			states, err := few.Hidden(ctx, [][]int32{ids})
			require.NoError(t, err)
			for i := range states {
				requireClose(t, states[i], hidden[i][at*m.Config.HiddenSize:(at+len(ids))*m.Config.HiddenSize], dir)
			}
			at += len(ids)
		}
		assert.Len(t, together, at*m.Config.VocabSize)
	}
}

// The loss of a batch does not see labels that are to be ignored.
func TestScorerLoss(t *testing.T) {
	dev, m := open(t, llama)
	ids := tokens(m, 10)
	next := append(slices.Clone(ids[1:]), ids[0])
	b := &data.Batch{}
	b.Add(ids, next)
	s := scorer(t, dev, m, nil, 10)
	all, err := s.Loss(ctx, b)
	require.NoError(t, err)
	sum := 0.0
	for i := range next {
		labels := slices.Repeat([]int32{data.Ignore}, 10)
		labels[i] = next[i]
		b.SetInts(nn.Labels, labels)
		one, err := s.Loss(ctx, b)
		require.NoError(t, err)
		require.Positive(t, one)
		sum += one
	}
	assert.InEpsilon(t, sum, all, 1e-6)

	b.SetInts(nn.Labels, next[:9])
	_, err = s.Loss(ctx, b)
	require.ErrorIs(t, err, nn.ErrInput)
	require.ErrorContains(t, err, `"labels" has 9 rows where the arrays before it have 10`)
	_, err = s.Loss(ctx, &data.Batch{})
	require.ErrorIs(t, err, generate.ErrToken)
}
