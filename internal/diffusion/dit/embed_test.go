package dit

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFrequency: frequencies are the exponentials of their float32 exponents, each rounded
// to the nearest float32.
func TestFrequency(t *testing.T) {
	for _, n := range []int{12, 16, 128} {
		for i := range n {
			exponent := float32(-math.Log(10000)) * float32(i) / float32(n)
			want := math.Exp(float64(exponent))
			got := frequency(i, n)
			off := math.Abs(float64(got) - want)
			for _, other := range []float32{math.Nextafter32(got, 0), math.Nextafter32(got, 2)} {
				require.LessOrEqual(t, off, math.Abs(float64(other)-want), "%d of %d", i, n)
			}
		}
	}
}
