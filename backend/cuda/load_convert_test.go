//go:build cuda && linux

package cuda_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/gputest"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// The device makes the blocks that package quant makes, byte for byte, of
// tensors that are larger than the memory they lie in before, too.
func TestLoadConverts(t *testing.T) {
	here := waysHere(t)
	shapes := [][]int{{3, 64}, {1, 1}, {5, 7}, {64}, {100}, {0, 64}, {700, 65}, {33, 4096}, {2, 70000}, {1000, 192}}
	for _, from := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16} {
		views := gputest.Weighted(t, from, shapes...)
		for _, to := range []tensor.DType{tensor.Q8, tensor.NF4} {
			for _, way := range here {
				t.Run(fmt.Sprint(from, to, way), func(t *testing.T) {
					dev := loader(t, way)
					require.True(t, dev.Info().Converts(from, to))
					weights := asStored(views)
					for i := range weights {
						if i != 3 { // among others that stay
							weights[i].DType = to
						}
					}
					buffers, err := dev.Load(t.Context(), weights)
					require.NoError(t, err)
					for i, v := range views {
						want := gputest.BlocksOf(t, v, from, weights[i].DType)
						got := make([]byte, buffers[i].Size())
						gputest.Wait(t)(dev.Download(got, buffers[i], 0))
						require.True(t, bytes.Equal(want, got), "%s %v", v.Name, v.Shape)
						buffers[i].Free()
					}
					require.Zero(t, dev.Held())
					s := dev.Loaded()
					require.Equal(t, s.Bytes-int64(views[3].Len()), s.Converted)
				})
			}
		}
	}
}

// A number that no block can hold is found, with tensor and place.
func TestLoadConvertsNoNaN(t *testing.T) {
	views := gputest.Weighted(t, tensor.F32, []int{10, 64}, []int{500, 128})
	for name, bad := range map[string]float32{"NaN": float32(math.NaN()), "-Inf": float32(math.Inf(-1))} {
		values := make([]float32, 500*128)
		values[40000] = bad
		broken := gputest.StoredViews(t, []safetensors.Entry{{Name: "broken", DType: safetensors.F32, Shape: []int{500, 128}, Data: tensor.BytesOf(values)}})
		all := append(views[:2:2], broken...)
		dev := loader(t, backend.LoadRing)
		weights := asStored(all)
		for i := range weights {
			weights[i].DType = tensor.NF4
		}
		_, err := dev.Load(t.Context(), weights)
		require.ErrorIs(t, err, quant.ErrNotFinite)
		require.ErrorContains(t, err, `tensor "broken": from element 36864 on: quant: element 3136 is `+name)
		require.Zero(t, dev.Held())
	}
}

// Whatever fails while weights are converted, nothing is left.
func TestConversionFails(t *testing.T) {
	for fail, kind := range map[string]error{
		"LFSIM_FAIL=launch:quantize_nf4_f32:1": backend.ErrLost, "LFSIM_FAIL=launch:quantize_nf4_f32:3": backend.ErrLost,
		"LFSIM_FAIL=alloc:2": backend.ErrOutOfMemory, "LFSIM_FAIL=hostalloc:5": backend.ErrOutOfMemory,
	} {
		t.Run(fail, func(t *testing.T) {
			env := []string{fail}
			if errors.Is(kind, backend.ErrLost) {
				env = append(env, "LFSIM_LEAKS=0")
			}
			if !onSimulator(t, env...) {
				return
			}
			dev := faulty(t, backend.LoadRing)
			weights := asStored(gputest.Weighted(t, tensor.F32, []int{10, 64}, []int{900, 128}))
			weights[1].DType = tensor.NF4
			_, err := dev.Load(t.Context(), weights)
			require.ErrorIs(t, err, kind)
			if !errors.Is(kind, backend.ErrLost) {
				require.Zero(t, dev.Held())
				require.NoError(t, gputest.Twice(dev), "the device lives on")
			}
		})
	}
}
