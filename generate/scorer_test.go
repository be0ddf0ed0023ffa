package generate_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/data"
	"github.com/lorafuse/lorafuse/generate"
)

// Rows give the same alone, together, and when they do not fit into one run.
func TestScorerRows(t *testing.T) {
	for _, dir := range []string{llama, "../testdata/extra/mistral-window", "../testdata/extra/dynamic"} {
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
	b := &data.Batch{Tokens: ids}
	for i := range ids {
		b.Labels = append(b.Labels, ids[(i+1)%10])
		b.Positions = append(b.Positions, int32(i))
		b.Lo, b.Hi = append(b.Lo, 0), append(b.Hi, int32(i+1))
	}
	s := scorer(t, dev, m, nil, 10)
	all, err := s.Loss(ctx, b)
	require.NoError(t, err)
	sum, labels := 0.0, b.Labels
	for i := range labels {
		b.Labels = make([]int32, 10)
		for j := range b.Labels {
			b.Labels[j] = data.Ignore
		}
		b.Labels[i] = labels[i]
		one, err := s.Loss(ctx, b)
		require.NoError(t, err)
		require.Positive(t, one)
		sum += one
	}
	assert.InEpsilon(t, sum, all, 1e-6)

	b.Labels = labels[:9]
	_, err = s.Loss(ctx, b)
	require.ErrorIs(t, err, generate.ErrOption)
	_, err = s.Loss(ctx, &data.Batch{})
	require.ErrorIs(t, err, generate.ErrToken)
}
