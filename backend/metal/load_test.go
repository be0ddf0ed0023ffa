//go:build cgo && (darwin || (metal && metalfake))

package metal_test

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/metal"
	"github.com/lorafuse/lorafuse/dev/gputest"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// The device makes the blocks that package quant makes, byte for byte, of tensors in several pieces too.
func TestLoadQuantizes(t *testing.T) {
	metal.SetConvertBytes(t, 64<<10)
	shapes := [][]int{{3, 64}, {1, 1}, {5, 7}, {64}, {100}, {0, 64}, {700, 65}, {33, 4096}, {1000, 192}}
	for _, from := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16} {
		views := gputest.Weighted(t, from, shapes...)
		for _, to := range []tensor.DType{tensor.Q8, tensor.NF4} {
			t.Run(fmt.Sprint(from, to), func(t *testing.T) {
				dev := opened(t, backend.Options{})
				require.True(t, dev.Info().Converts(from, to))
				weights := make([]backend.Weight, len(views))
				for i, v := range views {
					weights[i] = backend.Weight{View: v, DType: to}
				}
				weights[3].DType = from // among others
				buffers, err := dev.Load(t.Context(), weights)
				require.NoError(t, err)
				for i, v := range views {
					want := gputest.BlocksOf(t, v, from, weights[i].DType)
					got := make([]byte, buffers[i].Size())
					gputest.Wait(t)(dev.Download(got, buffers[i], 0))
					require.True(t, bytes.Equal(want, got), "%s %v", v.Name, v.Shape)
					buffers[i].Free()
				}
				dev.Settle()
				require.Zero(t, dev.Held())
				s := dev.Loaded()
				require.Positive(t, s.Converted)
				require.Equal(t, s.Bytes, s.Converted, "weights in place are not loaded")
			})
		}
	}
}

// An element that no block can hold is found, with tensor and place, and nothing is left.
func TestLoadQuantizesNoNaN(t *testing.T) {
	metal.SetConvertBytes(t, 64<<10)
	values := make([]float32, 500*128)
	values[40000] = float32(math.NaN())
	views := gputest.StoredViews(t, []safetensors.Entry{{Name: "broken", DType: safetensors.F32, Shape: []int{500, 128}, Data: tensor.BytesOf(values)}})
	dev := opened(t, backend.Options{})
	_, err := dev.Load(t.Context(), []backend.Weight{{View: views[0], DType: tensor.NF4}})
	require.ErrorIs(t, err, quant.ErrNotFinite)
	require.ErrorContains(t, err, `tensor "broken": from element 36864 on: quant: element 3136 is NaN`)
	dev.Settle()
	require.Zero(t, dev.Held())
	_, err = dev.Load(t.Context(), []backend.Weight{{View: views[0], DType: tensor.FP4}})
	require.ErrorIs(t, err, backend.ErrUnsupported)
	require.NoError(t, gputest.Twice(dev), "the device lives on")
}
