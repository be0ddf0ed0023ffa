package cache

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// A third of the captions is dropped, always the same ones.
func TestDropCaption(t *testing.T) {
	dropped := 0
	for step := range uint32(200) {
		for sample := range 50 {
			d := DropCaption(7, step, sample, 0.3)
			require.Equal(t, d, DropCaption(7, step, sample, 0.3))
			if d {
				dropped++
				require.True(t, DropCaption(7, step, sample, 0.4), "a higher rate drops more")
			}
			require.True(t, DropCaption(7, step, sample, 1))
			require.True(t, DropCaption(7, step, sample, 2))
			require.False(t, DropCaption(7, step, sample, 0))
			require.False(t, DropCaption(7, step, sample, -1))
			require.False(t, DropCaption(7, step, sample, math.NaN()))
		}
	}
	require.InDelta(t, 3000, dropped, 3*math.Sqrt(10000*0.3*0.7))
	differ := map[string]int{}
	for i := range 1000 {
		here := DropCaption(7, 3, i, 0.5)
		for name, there := range map[string]bool{"seed": DropCaption(8, 3, i, 0.5), "step": DropCaption(7, 4, i, 0.5), "sample": DropCaption(7, 3, i+1, 0.5)} {
			if here != there {
				differ[name]++
			}
		}
	}
	for _, name := range []string{"seed", "step", "sample"} {
		require.InDelta(t, 500, differ[name], 75, name)
	}
}
