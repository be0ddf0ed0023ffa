//go:build cgo && (darwin || (metal && metalfake))

package metal_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/metal"
)

// Parts of a grid have each threadgroup once, and need no more than the limit if they have several.
func TestDivide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		side := rapid.Uint32Range(1, 9)
		grid := [3]uint32{side.Draw(t, "x"), side.Draw(t, "y"), side.Draw(t, "z")}
		groups := float64(grid[0] * grid[1] * grid[2])
		limit, slow := rapid.Float64Range(0.1, 5).Draw(t, "limit"), rapid.Float64Range(0.01, 20).Draw(t, "slow")
		seen, sum := map[[3]uint32]bool{}, 0.0
		metal.Divide(limit, grid, slow, func(first, size [3]uint32, part float64) {
			n := float64(size[0] * size[1] * size[2])
			if n > 1 {
				require.LessOrEqual(t, part, limit)
			}
			require.InEpsilon(t, slow*n/groups, part, 1e-9)
			sum += part
			for x := range size[0] {
				for y := range size[1] {
					for z := range size[2] {
						at := [3]uint32{first[0] + x, first[1] + y, first[2] + z}
						require.False(t, seen[at], "%v twice", at)
						seen[at] = true
					}
				}
			}
		})
		require.Len(t, seen, int(groups))
		require.InEpsilon(t, slow, sum, 1e-9)
		for at := range seen {
			for i := range at {
				require.Less(t, at[i], grid[i])
			}
		}
	})
}

// Estimates follow measured times: at once if commands are slower, gradually if they are faster.
func TestPace(t *testing.T) {
	learn := metal.NewPace(0.1)
	require.Equal(t, 1.0, learn(0.05, 0)) // not measured
	require.Equal(t, 1.0, learn(1e-4, time.Second), "short commands are mostly overhead")
	require.InDelta(t, 0.775, learn(0.05, 5*time.Millisecond), 1e-9)
	for range 40 {
		learn(0.05, 5*time.Millisecond)
	}
	require.InDelta(t, 0.1, learn(0.05, 5*time.Millisecond), 1e-3)
	require.InDelta(t, 0.6, learn(0.05, 30*time.Millisecond), 1e-9)
	require.Equal(t, 8.0, learn(0.05, time.Hour))
}

// The device multiplies and adds in two roundings, and every kernel may have as many threads as its launches need.
func TestInspect(t *testing.T) {
	i, err := opened(t, backend.Options{}).Inspect()
	require.NoError(t, err)
	t.Log(i)
	require.Zero(t, i.Contracted, "a product followed by a sum is rounded twice")
	require.True(t, i.Fused)
	require.Len(t, i.Rates, 5)
	for _, r := range i.Rates {
		require.Positive(t, r.PerSecond, r.Name)
	}
	require.Greater(t, len(i.Pipelines), 100)
	for _, p := range i.Pipelines {
		require.GreaterOrEqual(t, p.Threads, p.Needed, p.Kernel)
		require.Equal(t, 32, p.Width, p.Kernel)
		require.LessOrEqual(t, p.Memory, i.Memory, p.Kernel)
	}
}
