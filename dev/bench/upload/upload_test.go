package upload

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	_ "github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/dev/bench"
)

func TestRun(t *testing.T) {
	dir := t.TempDir()
	r, err := Run(t.Context(), Options{Turns: bench.Turns{Runs: 3}, Backend: backend.CPU, Threads: 1, Sizes: []string{"tiny"}, Dir: dir})
	require.NoError(t, err)
	require.Len(t, r.Rows, 1, "the CPU copies nothing")
	row := r.Rows[0]
	assert.Len(t, row.Seconds, 3)
	weights := 2*320*64 + 2*(64*64+2*32*64+64*64+3*192*64) + 5*64 // and five norms
	assert.EqualValues(t, 2*weights, row.Bytes)
	assert.Positive(t, row.Figures().Rate)
	assert.Empty(t, r.Verdicts())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestBadOptions(t *testing.T) {
	for says, o := range map[string]Options{
		"no size":          {Turns: bench.Turns{Runs: 1}},
		`found size "tin"`: {Turns: bench.Turns{Runs: 1}, Sizes: []string{"tin"}},
		"found 0 runs":     {Sizes: []string{"tiny"}, Backend: backend.CPU},
		"no row matches":   {Turns: bench.Turns{Runs: 1, Only: regexp.MustCompile("nothing$")}, Sizes: []string{"tiny"}, Backend: backend.CPU},
	} {
		_, err := Run(t.Context(), o)
		require.ErrorIs(t, err, bench.ErrOptions, says)
		require.ErrorContains(t, err, says)
	}
	_, err := Run(t.Context(), Options{Turns: bench.Turns{Runs: 1}, Sizes: []string{"tiny"}, Backend: "tpu"})
	require.ErrorIs(t, err, backend.ErrUnavailable)
}
