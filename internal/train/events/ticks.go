//go:build !noplot

package events

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
)

// ticks places axis marks at multiples of 1, 2 or 5 times a power of ten, with a maximum number; step axes only at
// integers.
type ticks struct {
	most  int
	whole bool
}

func (t ticks) Ticks(low, high float64) []plot.Tick {
	step, decimals := t.step(high - low)
	var out []plot.Tick
	for k := math.Ceil(low / step); k*step <= high; k++ {
		x := k * step
		out = append(out, plot.Tick{Value: x, Label: strconv.FormatFloat(x+0, 'f', decimals, 64)})
	}
	return out
}

// step returns the distance of the ticks and the number of decimals of their labels.
func (t ticks) step(width float64) (step float64, decimals int) {
	power := int(math.Floor(math.Log10(width))) - 3
	if t.whole {
		power = max(power, 0)
	}
	for ; ; power++ {
		for _, digit := range []float64{1, 2, 5} {
			step = digit * math.Pow10(power)
			if width/step <= float64(t.most) {
				return step, max(0, -power)
			}
		}
	}
}
