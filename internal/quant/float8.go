package quant

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/tensor"
)

// largestFloat8 is the largest finite F8_E4M3 number.
const largestFloat8 = 448

// Float8Row converts a row to F8_E4M3 with one scale, the largest magnitude divided by
// 448: value i is approximately dst[i]·scale, as in quanto's qfloat8. Errors:
// ErrNotFinite.
func Float8Row(dst []byte, row []float32) (scale float32, err error) {
	for i, x := range row {
		if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
			return 0, fmt.Errorf("quant: element %d is %v: %w", i, x, ErrNotFinite)
		}
		scale = max(scale, x, -x)
	}
	scale /= largestFloat8
	if scale == 0 {
		scale = 1
	}
	for i, x := range row {
		dst[i] = tensor.Float32ToF8E4M3(max(-largestFloat8, min(largestFloat8, x/scale)))
	}
	return scale, nil
}

// Float8Block converts values to F8_E4M3 with one scale: the given one if the values fit it and
// use more than a quarter of its range, so that values which have been rounded to it before stay
// as they are, and otherwise the largest magnitude divided by 448, rounded by round. Errors:
// ErrNotFinite.
func Float8Block(dst []byte, values []float32, scale float32, round func(float32) float32) (float32, error) {
	largest := float32(0)
	for i, x := range values {
		if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
			return 0, fmt.Errorf("quant: element %d is %v: %w", i, x, ErrNotFinite)
		}
		largest = max(largest, x, -x)
	}
	if !(scale > 0) || largest > largestFloat8*scale || largest > 0 && largest < largestFloat8/4*scale {
		if scale = round(largest / largestFloat8); scale == 0 {
			scale = 1
		}
	}
	for i, x := range values {
		dst[i] = tensor.Float32ToF8E4M3(max(-largestFloat8, min(largestFloat8, x/scale)))
	}
	return scale, nil
}
