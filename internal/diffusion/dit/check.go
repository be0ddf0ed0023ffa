package dit

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/model"
)

// maxLayers limits memory if config.json has a wrong number of layers.
const maxLayers = 1 << 14

// checkTransformer validates the sizes in config.json. Errors: model.ErrConfig.
func checkTransformer(layers, heads, headDim, channels, text int, axes []int) error {
	if err := checkLayers("num_layers", layers); err != nil {
		return err
	}
	err := model.CheckSizes(
		model.Size{Key: "num_attention_heads", N: heads}, model.Size{Key: "attention_head_dim", N: headDim},
		model.Size{Key: "num_attention_heads times attention_head_dim", N: heads * headDim},
		model.Size{Key: "in_channels", N: channels}, model.Size{Key: "joint_attention_dim", N: text},
	)
	if err != nil {
		return err
	}
	if channels%(patch*patch) != 0 {
		return fmt.Errorf("%w: in_channels: found %d, expected a multiple of %d: the places of a token", model.ErrConfig, channels, patch*patch)
	}
	return checkRotary("axes_dims_rope", axes, 3, "attention_head_dim", headDim)
}

// maxPatch limits the patch size.
const maxPatch = 1 << 8

// checkLayers validates a number of layers. Errors: model.ErrConfig.
func checkLayers(key string, n int) error {
	if n < 0 || n > maxLayers {
		return fmt.Errorf("%w: %s: found %d, expected 0 to %d", model.ErrConfig, key, n, maxLayers)
	}
	return nil
}

// checkRotary checks that dims has the given number of axes and that their dimensions sum to
// the head size. Errors: model.ErrConfig.
func checkRotary(key string, dims []int, axes int, head string, size int) error {
	sum := 0
	for _, d := range dims {
		if d < 0 || d%2 != 0 || d > size {
			return fmt.Errorf("%w: %s: found %v, expected even numbers of 0 to %d", model.ErrConfig, key, dims, size)
		}
		sum += d
	}
	if len(dims) != axes || sum != size {
		return fmt.Errorf("%w: %s: found %v, expected %d that add up to %s %d", model.ErrConfig, key, dims, axes, head, size)
	}
	return nil
}

// maxRatio is the maximum ratio of the feed-forward width to the stream width.
const maxRatio = 1 << 10

// checkSize validates n heads of a size. Errors: model.ErrConfig.
func checkSize(heads string, n int, head string, size int) error {
	return model.CheckSizes(model.Size{Key: heads, N: n}, model.Size{Key: head, N: size}, model.Size{Key: heads + " times " + head, N: n * size})
}

// wrongSize returns the error for a velocity with an unexpected number of elements.
func wrongSize(found, expected int) error {
	return fmt.Errorf("dit: %w: found a velocity of %d elements, expected %d", ErrSample, found, expected)
}
