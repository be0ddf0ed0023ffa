package session

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// at is −∂loss/∂p, in the formula that programs have.
func (s slope) at(p float64) float64 {
	off := p - float64(s.q)
	rho := math.Exp(off)
	g := rho
	switch {
	case rho < float64(s.low):
		g = float64(s.below)
	case rho > float64(s.high):
		g = float64(s.above)
	}
	return float64(s.weight) + float64(s.ratio)*g - float64(s.pull)*off
}

// The slope of each loss is that of its value, by finite differences.
func TestSlopes(t *testing.T) {
	for _, name := range Losses() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				x := Loss{Name: name, Config: map[string]float64{}}
				d := &Datum{Tokens: []int32{0}, Targets: []int32{0}}
				number := func(what string, low, high float32) []float32 {
					return []float32{rapid.Float32Range(low, high).Draw(t, what)}
				}
				switch name {
				case "cross_entropy":
					d.Weights = number("weight", -2, 2)
				case "dro":
					x.Config["beta"] = rapid.Float64Range(0, 1).Draw(t, "beta")
				case "ppo", "cispo":
					if rapid.Bool().Draw(t, "settings") {
						x.Config[lowKey], x.Config[highKey] = rapid.Float64Range(0, 1).Draw(t, "low"), rapid.Float64Range(1, 3).Draw(t, "high")
					}
					if rapid.Bool().Draw(t, "by token") {
						d.ClipLow, d.ClipHigh = number("low", 0, 1), number("high", 1, 3)
					}
				}
				if name != "cross_entropy" {
					d.Logprobs, d.Advantages = number("q", -9, -0.1), number("advantage", -3, 3)
				}
				p := rapid.Float64Range(-9, -0.1).Draw(t, "p")
				if d.Logprobs != nil {
					p = float64(d.Logprobs[0]) + rapid.Float64Range(-2, 2).Draw(t, "off")
				}
				l, err := x.resolve()
				require.NoError(t, err)
				require.NoError(t, d.check(l, limits{1, 1}))

				const h = 1e-5
				value := func(p float64) float64 { return l.value(l, d, 0, p) }
				if l.clip != never {
					low, high := l.thresholds(d, 0)
					ratio := d.ratio(0, p)
					for _, edge := range []float64{low, high} {
						if math.Abs(ratio-edge) < 1e-3 {
							t.Skip("there is a kink")
						}
					}
					if name == "cispo" { // the ratio is taken as a constant
						fixed := min(max(ratio, low), high)
						value = func(p float64) float64 { return -fixed * p * d.advantage(0) }
						require.Equal(t, value(p), l.value(l, d, 0, p))
					}
				}
				numeric := -(value(p+h) - value(p-h)) / (2 * h)
				require.InDelta(t, numeric, l.slope(l, d, 0).at(p), 1e-5*math.Max(1, math.Abs(numeric)))
			})
		})
	}
}
