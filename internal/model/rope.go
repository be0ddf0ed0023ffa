package model

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// RoPE is a rotary position embedding with its scaling.
type RoPE struct {
	Type  string // default, linear, dynamic, yarn, llama3, longrope or, in Gemma 4, proportional
	Theta float64
	Dim   int // the number of elements of a head that are rotated, the first ones
	// Interleaved reports that elements 2j and 2j+1 of a head form a pair, instead of elements
	// of its two halves.
	Interleaved bool `json:",omitempty"`

	Factor          float64
	MaxPositions    int       // dynamic: the length that the model was made for
	Original        float64   // yarn, llama3, longrope: the length before scaling
	LowFreqFactor   float64   // llama3
	HighFreqFactor  float64   // llama3
	BetaFast        float64   // yarn
	BetaSlow        float64   // yarn
	Truncate        bool      // yarn
	AttentionFactor float64   // yarn, longrope: cosines and sines are multiplied by it
	Short           []float64 `json:",omitempty"` // longrope: divisors of the frequencies, up to Original tokens
	Long            []float64 `json:",omitempty"` // longrope: the divisors for longer texts
	Rotated         int       `json:",omitempty"` // proportional: the number of pairs that are rotated, the first ones
	Reread          bool      `json:",omitempty"` // longrope: see [nn.Derived]
}

// These are bounds for the settings that frequencies are computed from in float32.
const (
	maxTheta  = 1e30
	maxFactor = 1e9
)

var ropeTypes = []string{"default", "linear", "dynamic", "yarn", "llama3", "longrope"}

// plainRoPE returns a rotary embedding without scaling.
func plainRoPE(c *Config, headDim int, theta float64) RoPE {
	return RoPE{Type: "default", Dim: headDim, Theta: theta, Factor: 1, MaxPositions: c.MaxPositions, AttentionFactor: 1}
}

// rope reads rope_parameters of transformers 5, or rope_theta and rope_scaling of transformers
// 4. theta is the default base.
func (f *Fields) rope(c *Config, headDim int, theta float64) RoPE {
	r := f.partialRoPE(c, headDim, theta, 1)
	if r.Dim != headDim {
		f.Unsupported("partial_rotary_factor", float64(r.Dim)/float64(headDim), []string{"1"})
	}
	return r
}

// ropeKey returns the key of the table of a rotary embedding. As in transformers 5, rope_scaling
// takes the place of all of rope_parameters unless it is empty.
func (f *Fields) ropeKey() string {
	const current, former = "rope_parameters", "rope_scaling"
	if f.Has(current) && len(f.Object(former).values) == 0 {
		return current
	}
	return former
}

// partialRoPE reads the same keys for a model that may rotate only a part of each head. share
// is the default of partial_rotary_factor.
func (f *Fields) partialRoPE(c *Config, headDim int, theta, share float64) RoPE {
	key := f.ropeKey()
	s := f.Object(key)
	if s.Has(fullAttention) || s.Has(slidingAttention) {
		f.Unsupported(key, "a table for each layer type", []string{"one table for all layers"})
	}
	share = s.Float(rotaryShare, f.Float(rotaryShare, share))
	if !(share > 0) || share > 1 {
		f.Fail(rotaryShare, share, "more than 0, and at most 1")
	}
	if f.Has(originalLength) && s.values != nil { // the key at the top level comes first
		s.values[originalLength] = f.values[originalLength]
	}
	r := plainRoPE(c, int(float64(headDim)*share), f.Float("rope_theta", theta))
	if headDim > 0 && r.Dim == 0 {
		f.Fail(rotaryShare, share, fmt.Sprintf("at least one of the %d elements of a head", headDim))
	}
	return r.scaled(c, f, s, key)
}

const (
	rotaryShare    = "partial_rotary_factor"            // the part of a head that is rotated
	originalLength = "original_max_position_embeddings" // the length of texts before scaling
)

// ropeOf reads rope_parameters of one layer type, as transformers 5 writes them if layer types
// differ. base provides the defaults.
func (f *Fields) ropeOf(c *Config, layerType string, base RoPE) RoPE {
	const key = "rope_parameters"
	types := f.Object(key)
	if len(types.values) > 0 && !types.Has(fullAttention) && !types.Has(slidingAttention) {
		f.Fail(key, "one table", "one for each layer type")
	}
	s := types.Object(layerType)
	if p := s.Float(rotaryShare, f.Float(rotaryShare, 1)); p != 1 {
		s.Unsupported(rotaryShare, p, []string{"1"})
	}
	if types.err != nil && f.err == nil {
		f.err = fmt.Errorf("%s: %w", key, types.err)
	}
	r := base.scaled(c, f, s, key+"."+layerType)
	r.Truncate = r.Truncate && types.Bool("truncate", true) // transformers reads this key beside the tables
	return r
}

// scaled returns r with the settings of s, the object at key; an empty s changes nothing.
func (r RoPE) scaled(c *Config, f, s *Fields, key string) RoPE {
	r.Type = s.String("rope_type", s.String("type", "default"))
	r.Theta = s.Float("rope_theta", r.Theta)
	factor := func() float64 {
		if !s.Has("factor") {
			s.Fail("factor", "nothing", "a number")
		}
		return s.Float("factor", 1)
	}
	original := func() float64 { return s.Float(originalLength, float64(c.MaxPositions)) }
	switch r.Type {
	case "default":
	case "linear", "dynamic":
		r.Factor = factor()
	case "llama3":
		r.Factor, r.Original = factor(), original()
		r.LowFreqFactor, r.HighFreqFactor = s.Float("low_freq_factor", 1), s.Float("high_freq_factor", 4)
	case "yarn":
		r.Original = original()
		r.Factor = s.Float("factor", float64(c.MaxPositions)/r.Original)
		r.BetaFast, r.BetaSlow = orElse(s.Float("beta_fast", 0), 32), orElse(s.Float("beta_slow", 0), 1)
		r.Truncate = s.Bool("truncate", true)
		r.AttentionFactor = yarnAttention(s, r.Factor)
	case "longrope":
		r.Original = original()
		r.Factor = s.Float("factor", float64(c.MaxPositions)/r.Original)
		r.Short, r.Long = s.divisors("short_factor", r.pairs()), s.divisors("long_factor", r.pairs())
		r.AttentionFactor = s.Float("attention_factor", longAttention(r.Factor, r.Original))
	default:
		s.Unsupported("rope_type", r.Type, ropeTypes)
	}
	if s.err != nil && f.err == nil {
		f.err = fmt.Errorf("%s: %w", key, s.err)
	}
	return r.check(f, key)
}

func (r RoPE) check(f *Fields, key string) RoPE {
	if r.Theta > maxTheta || r.Factor > maxFactor {
		f.Fail(key, fmt.Sprintf("theta %v, factor %v", r.Theta, r.Factor), fmt.Sprintf("at most %g and %g", maxTheta, maxFactor))
	}
	if !(r.Theta > 0) || !(r.Factor > 0) || (r.Type == "yarn" || r.Type == "longrope") && !(r.Original > 0) || r.Type == "llama3" && r.HighFreqFactor == r.LowFreqFactor {
		f.Fail(key, fmt.Sprintf("theta %v, factor %v", r.Theta, r.Factor), "positive numbers, and factors that differ")
	}
	if r.Type == "dynamic" && r.Dim < 3 || r.Type == "yarn" && r.Dim%2 != 0 {
		f.Fail(key, fmt.Sprintf("%d rotated elements of a head", r.Dim), "3 or more for dynamic, and an even number for yarn")
	}
	return r
}

// divisors reads a list with one positive number for each frequency.
func (f *Fields) divisors(key string, n int) []float64 {
	list := f.Floats(key)
	if len(list) != n {
		f.Fail(key, fmt.Sprintf("%d numbers", len(list)), fmt.Sprintf("%d, one for each pair of rotated elements", n))
	}
	for _, x := range list {
		if !(x > 0) {
			f.Fail(key, x, "positive numbers")
		}
	}
	return list
}

// longAttention returns the attention factor of longrope (Ding et al. 2024, arXiv 2402.13753).
func longAttention(factor, original float64) float64 {
	if factor <= 1 {
		return 1
	}
	return math.Sqrt(1 + math.Log(factor)/math.Log(original))
}

func orElse(x, def float64) float64 {
	if x == 0 {
		return def
	}
	return x
}

// yarnAttention returns the attention factor of yarn, given or computed from the factor (Peng
// et al. 2023, arXiv 2309.00071, section 3.4).
func yarnAttention(s *Fields, factor float64) float64 {
	if s.Has("attention_factor") {
		return s.Float("attention_factor", 1)
	}
	scale := func(m float64) float64 {
		if factor <= 1 {
			return 1
		}
		return 0.1*m*math.Log(factor) + 1
	}
	m, all := s.Float("mscale", 0), s.Float("mscale_all_dim", 0)
	if m != 0 && all != 0 {
		return scale(m) / scale(all)
	}
	return scale(1)
}

// Dynamic reports whether the frequencies grow with the length of the text.
func (r RoPE) Dynamic() bool { return r.Type == "dynamic" }

// pairs returns the number of pairs of a head that are rotated. An odd Dim is rounded up.
func (r RoPE) pairs() int { return (r.Dim + 1) / 2 }

// rotate rotates the heads of x by the angles of a table of r. The elements of a head that
// follow the rotated ones keep their values.
func (r RoPE) rotate(x, table graph.Tensor, headDim int) graph.Tensor {
	n := 2 * r.pairs()
	turn := graph.Tensor.RoPE
	if r.Interleaved {
		turn = graph.Tensor.RoPEInterleaved
	}
	if !x.Valid() || n == headDim {
		return turn(x, table, headDim)
	}
	s := x.Type().Shape
	heads := s[1].N / headDim
	split := func(x graph.Tensor, size int) graph.Tensor { return x.Reshape(s[0], ir.Static(heads), ir.Static(size)) }
	x = split(x, headDim)
	turned := turn(x.Slice(2, 0, n).Reshape(s[0], ir.Static(heads*n)), table, n)
	return graph.Concat(2, split(turned, n), x.Slice(2, n, headDim)).Reshape(s...)
}

// table returns the cosines and sines of positions. name distinguishes its frequencies from
// others of the model and may be empty.
func (r RoPE) table(b *nn.Builder, name string, positions graph.Tensor) graph.Tensor {
	d := nn.Derived{Name: "rope.frequencies", Shape: []int{r.pairs()}, Values: r.Frequencies}
	if name != "" {
		d.Name = "rope." + name + ".frequencies"
	}
	switch {
	case r.Dynamic():
		d.Until = r.MaxPositions
	case r.Type == "longrope":
		d.Until, d.Reread = int(r.Original), r.Reread
	}
	return positions.RoPETable(b.Derived(d), float32(r.AttentionFactor))
}

// Frequencies returns the inverse frequencies of the pairs for a text of length tokens, with
// the same rounding as PyTorch.
func (r RoPE) Frequencies(length int) []float32 {
	theta := r.Theta
	if r.Dynamic() {
		n, most, d := float64(max(length, r.MaxPositions)), float64(r.MaxPositions), float64(r.Dim)
		theta *= math.Pow(r.Factor*n/most-(r.Factor-1), d/(d-2))
	}
	powers := make([]float32, r.pairs())
	freqs := make([]float32, r.pairs())
	for i := range freqs {
		powers[i] = float32(math.Pow(float64(float32(theta)), float64(float32(2*i)/float32(r.Dim))))
		freqs[i] = 1 / powers[i]
	}
	switch r.Type {
	case "linear":
		for i := range freqs {
			freqs[i] /= float32(r.Factor)
		}
	case "proportional":
		for i := range freqs {
			if freqs[i] /= float32(r.Factor); i >= r.Rotated {
				freqs[i] = 0
			}
		}
	case "llama3":
		r.llama3(freqs)
	case "yarn":
		r.yarn(freqs, powers)
	case "longrope":
		divisors := r.Short
		if float64(length) > r.Original {
			divisors = r.Long
		}
		for i := range freqs {
			freqs[i] = 1 / (float32(divisors[i]) * powers[i])
		}
	}
	return freqs
}

// llama3 scales long wavelengths by the factor, keeps short ones, and interpolates between
// them (Llama 3.1, as in transformers).
func (r RoPE) llama3(freqs []float32) {
	for i, f := range freqs {
		wavelength := 2 * math.Pi / float64(f)
		switch {
		case wavelength < r.Original/r.HighFreqFactor:
		case wavelength > r.Original/r.LowFreqFactor:
			freqs[i] = float32(float64(f) / r.Factor)
		default:
			smooth := (r.Original/wavelength - r.LowFreqFactor) / (r.HighFreqFactor - r.LowFreqFactor)
			freqs[i] = float32((1-smooth)*float64(f)/r.Factor + smooth*float64(f))
		}
	}
}

// yarn interpolates by a ramp over the dimensions (arXiv 2309.00071, section 3.2).
func (r RoPE) yarn(freqs, powers []float32) {
	d := float64(r.Dim)
	turning := func(rotations float64) float64 {
		return d * math.Log(r.Original/(rotations*2*math.Pi)) / (2 * math.Log(r.Theta))
	}
	low, high := turning(r.BetaFast), turning(r.BetaSlow)
	if r.Truncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, d-1)
	if low == high {
		high += 0.001
	}
	for i, f := range freqs {
		ramp := float32(min(1, max(0, (float64(i)-low)/(high-low))))
		keep := 1 - ramp
		freqs[i] = 1/(float32(r.Factor)*powers[i])*(1-keep) + f*keep
	}
}
