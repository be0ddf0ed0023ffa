package quant_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/safetensors"
)

// The maps are those of bitsandbytes, bit for bit.
func TestDynamicMaps(t *testing.T) {
	f, err := safetensors.Open("../../testdata/dit/adam8bit/golden.safetensors")
	require.NoError(t, err)
	defer f.Close()
	for name, signed := range map[string]bool{"qmap1": true, "qmap2": false} {
		v, err := f.Lookup(name)
		require.NoError(t, err)
		want, err := safetensors.As[float32](v)
		require.NoError(t, err)
		d := quant.NewDynamic(signed)
		assert.Equal(t, want, d.Values[:], name)
	}
}

// A number becomes the nearest of the map, but for what the grid moves it.
func TestDynamicNearest(t *testing.T) {
	for _, signed := range []bool{true, false} {
		d := quant.NewDynamic(signed)
		low := float32(0)
		if signed {
			low = -1
		}
		rapid.Check(t, func(t *rapid.T) {
			x := rapid.SliceOfN(rapid.Float32Range(low, 1), 1, quant.DynamicBlock).Draw(t, "x")
			codes, back := make([]uint8, len(x)), make([]float32, len(x))
			scale := d.Encode(codes, x)
			d.Decode(back, codes, scale)
			for i := range x {
				nearest := math.Inf(1)
				for _, v := range d.Values {
					nearest = min(nearest, math.Abs(float64(v*scale-x[i])))
				}
				require.LessOrEqual(t, math.Abs(float64(back[i]-x[i])), nearest+float64(scale)/32000)
			}
		})
	}
}

func TestDynamicZeros(t *testing.T) {
	d := quant.NewDynamic(true)
	codes := []uint8{7, 7}
	assert.Zero(t, d.Encode(codes, []float32{0, 0}))
	assert.Equal(t, []uint8{0, 0}, codes)
}

func ExampleDynamic() {
	d := quant.NewDynamic(true)
	codes, back := make([]uint8, 3), make([]float32, 3)
	scale := d.Encode(codes, []float32{0.02, -0.5, 0.001})
	d.Decode(back, codes, scale)
	fmt.Println(scale, codes)
	fmt.Printf("%.4f\n", back)
	// Output:
	// 0.5 [169 0 144]
	// [0.0198 -0.4965 0.0009]
}
