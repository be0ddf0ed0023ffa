package flow

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestBeta: the levels that diffusers gives.
func TestBeta(t *testing.T) {
	s, err := Parse([]byte(`{"shift": 0.5, "shift_terminal": 0.1, "num_train_timesteps": 100, "use_beta_sigmas": true}`))
	require.NoError(t, err)
	want := []float32{1, 0.9359721541404724, 0.804833710193634, 0.638713002204895, 0.4612869322299957, 0.2951662540435791, 0.16402779519557953, 0.09999996423721313, 0}
	assert.InDeltaSlice(t, want, s.Sample(8, 0).Sigmas, 1.2e-7)
}

// TestBetaQuantile: betaQuantile inverts betaBelow, down to the smallest shares.
func TestBetaQuantile(t *testing.T) {
	assert.Zero(t, betaQuantile(0))
	assert.Equal(t, 1.0, betaQuantile(1))
	for p := 0.5; p > 1e-150; p /= 3 {
		assert.InEpsilon(t, p, betaBelow(betaQuantile(p)), 1e-14, "p = %v", p)
	}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.Float64Range(0, 0.5).Draw(t, "p")
		x := betaQuantile(p)
		assert.InDelta(t, p, betaBelow(x), 1e-15+1e-14*p)
		assert.InDelta(t, 1, x+betaQuantile(1-p), 1e-14)
	})
}
