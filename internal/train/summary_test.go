package train_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/train"
)

// TestSummaryJSON: a summary is JSON whatever its evaluations were, and comes
// back as it was.
func TestSummaryJSON(t *testing.T) {
	for _, c := range []struct {
		first, last *float64
		says        string
	}{
		{nil, nil, ""},
		{new(1.5), new(0.25), `"first_eval_loss":1.5,"last_eval_loss":0.25}`},
		{new(math.Inf(1)), new(math.NaN()), `"first_eval_loss":"Infinity","last_eval_loss":"NaN"}`},
	} {
		s := train.Summary{Steps: 3, FirstLoss: 2, FirstEval: c.first, LastEval: c.last, Adapter: "x"}
		for _, v := range []any{s, &s} {
			text, err := json.Marshal(v)
			require.NoError(t, err)
			assert.Contains(t, string(text), c.says)
			var back train.Summary
			require.NoError(t, json.Unmarshal(text, &back))
			assert.Equal(t, s.Steps, back.Steps)
			assert.Equal(t, s.Adapter, back.Adapter)
			assert.Equal(t, c.first, back.FirstEval)
			if c.last != nil && math.IsNaN(*c.last) {
				assert.True(t, math.IsNaN(*back.LastEval))
			} else {
				assert.Equal(t, c.last, back.LastEval)
			}
		}
	}
}
