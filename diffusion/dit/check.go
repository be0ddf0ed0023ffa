package dit

import (
	"fmt"

	"github.com/lorafuse/lorafuse/model"
)

// maxLayers keeps a wrong number from taking all memory.
const maxLayers = 1 << 14

// checkTransformer refuses numbers of config.json that make no transformer. Errors:
// model.ErrConfig.
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

// maxPatch keeps the sizes of tokens in range.
const maxPatch = 1 << 8

// checkLayers refuses what is no number of layers. Errors: model.ErrConfig.
func checkLayers(key string, n int) error {
	if n < 0 || n > maxLayers {
		return fmt.Errorf("%w: %s: found %d, expected 0 to %d", model.ErrConfig, key, n, maxLayers)
	}
	return nil
}

// checkRotary refuses what are not so many axes of a rotary embedding that make up a head.
// Errors: model.ErrConfig.
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

// maxRatio is how much wider than a stream its feed-forward layers may be.
const maxRatio = 1 << 10

// checkSize refuses so many heads of a size. Errors: model.ErrConfig.
func checkSize(heads string, n int, head string, size int) error {
	return model.CheckSizes(model.Size{Key: heads, N: n}, model.Size{Key: head, N: size}, model.Size{Key: heads + " times " + head, N: n * size})
}

// wrongSize says that an array has not the elements that were expected.
func wrongSize(found, expected int) error {
	return fmt.Errorf("dit: %w: found a velocity of %d elements, expected %d", ErrSample, found, expected)
}
