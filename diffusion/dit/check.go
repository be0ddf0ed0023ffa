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
	if layers < 0 || layers > maxLayers {
		return fmt.Errorf("%w: num_layers: found %d, expected 0 to %d", model.ErrConfig, layers, maxLayers)
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
	return checkAxes(axes, headDim)
}

// checkAxes refuses axes of a rotary embedding that do not make up a head.
func checkAxes(axes []int, headDim int) error {
	sum := 0
	for _, d := range axes {
		if d < 0 || d%2 != 0 || d > headDim {
			return fmt.Errorf("%w: axes_dims_rope: found %v, expected even numbers of 0 to %d", model.ErrConfig, axes, headDim)
		}
		sum += d
	}
	if len(axes) != 3 || sum != headDim {
		return fmt.Errorf("%w: axes_dims_rope: found %v, expected 3 that add up to attention_head_dim %d", model.ErrConfig, axes, headDim)
	}
	return nil
}

// fmtSize says that an array has not the elements that were expected.
func fmtSize(found, expected int) error {
	return fmt.Errorf("dit: %w: found a velocity of %d elements, expected %d", ErrSample, found, expected)
}
