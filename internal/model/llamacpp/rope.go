package llamacpp

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/internal/model"
)

// The tensors of rotary frequencies.
const (
	ropeFactors      = "rope_freqs.weight"
	ropeFactorsLong  = "rope_factors_long.weight"
	ropeFactorsShort = "rope_factors_short.weight"
)

// rotary adds the keys of a rotary embedding. suffix is that of keys for layers with
// sliding attention.
func (e *exporter) rotary(r model.RoPE, suffix string) {
	e.addFloat("rope.freq_base"+suffix, r.Theta)
	var divisors struct{ Short, Long []float32 }
	if raw, err := json.Marshal(r); err == nil {
		_ = json.Unmarshal(raw, &divisors) // they are absent for other types
	}
	dim := r.Dim
	if dim == 0 { // no layer is rotated
		dim = e.HeadDim
	}
	e.unless(dim%2 == 0, "partial_rotary_factor", fmt.Sprintf("%d rotated elements of a head", dim), "an even number")
	e.addInt("rope.dimension_count", dim)
	switch r.Type {
	case "default":
	case "linear":
		e.add("rope.scaling.type", "linear")
		e.addFloat("rope.scaling.factor", r.Factor)
	case "llama3":
		e.extra = append(e.extra, Extra{ropeFactors, llama3Factors(r)})
	case "yarn":
		standard := 1.0
		if r.Factor > 1 {
			standard = yarnFactor(r.Factor)
		}
		e.unless(e.arch.name == "mistral3" || r.BetaFast == 32 && r.BetaSlow == 1, "rope_parameters: beta_fast, beta_slow", fmt.Sprintf("%v, %v", r.BetaFast, r.BetaSlow), "32, 1")
		e.unless(r.Truncate, "rope_parameters: truncate", false, "true")
		e.add("rope.scaling.type", "yarn")
		e.addFloat("rope.scaling.factor", r.Factor)
		e.addInt("rope.scaling.original_context_length", int(r.Original))
		e.addFloat("rope.scaling.yarn_beta_fast", r.BetaFast)
		e.addFloat("rope.scaling.yarn_beta_slow", r.BetaSlow)
		e.addFloat("rope.scaling.attn_factor", r.AttentionFactor/standard)
	case "longrope":
		e.unless(len(divisors.Long) > 0 && len(divisors.Short) > 0, "rope_parameters", "longrope without factors", "long_factor and short_factor")
		e.add("rope.scaling.type", "longrope")
		e.addInt("rope.scaling.original_context_length", int(r.Original))
		e.addFloat("rope.scaling.attn_factor", r.AttentionFactor)
		e.extra = append(e.extra, Extra{ropeFactorsLong, divisors.Long}, Extra{ropeFactorsShort, divisors.Short})
	default:
		e.unless(false, "rope_parameters: rope_type", r.Type, "default, linear, llama3, yarn, longrope")
	}
}

// llama3Factors returns the divisors of the frequencies.
func llama3Factors(r model.RoPE) []float32 {
	plain := r
	plain.Type = "default"
	base, scaled := plain.Frequencies(0), r.Frequencies(0)
	factors := make([]float32, len(base))
	for i := range base {
		factors[i] = base[i] / scaled[i]
	}
	return factors
}

// ropeConfig returns rope_parameters for a file's keys, with rope_theta. factors is its
// tensor of divisors, or nil.
func (i *importer) ropeConfig(headDim int, factors []float32) map[string]any {
	theta := i.float("rope.freq_base", 10000)
	p := map[string]any{"rope_type": "default", "rope_theta": theta}
	kind := i.text("rope.scaling.type", "none")
	if n := i.int("rope.dimension_count", headDim); n != headDim {
		i.fail("%s.rope.dimension_count: found %d, expected the size of a head, %d", i.arch.name, n, headDim)
	}
	factor := i.float("rope.scaling.factor", 1)
	switch {
	case factors != nil:
		i.llama3(p, headDim, factors)
	case kind == "none" || kind == "linear" && factor == 1:
		if scale := i.float("rope.scale_linear", 1); scale != 1 {
			p["rope_type"], p["factor"] = "linear", scale
		}
	case kind == "linear":
		p["rope_type"], p["factor"] = kind, factor
	case kind == "yarn":
		p["rope_type"], p["factor"] = kind, factor
		p["original_max_position_embeddings"] = i.int("rope.scaling.original_context_length", i.contextLength)
		p["beta_fast"], p["beta_slow"] = i.float("rope.scaling.yarn_beta_fast", 32), i.float("rope.scaling.yarn_beta_slow", 1)
		if attention := i.float("rope.scaling.attn_factor", 1); attention != 1 {
			p["attention_factor"] = attention * yarnFactor(factor)
		}
	default:
		i.fail("%s.rope.scaling.type: found %q; supported: none, linear, yarn", i.arch.name, kind)
	}
	return p
}

// llama3 finds the parameters of Llama 3's scaling that give the factors of a file.
func (i *importer) llama3(p map[string]any, headDim int, factors []float32) {
	largest := float64(0)
	for _, f := range factors {
		largest = max(largest, float64(f))
	}
	theta := p["rope_theta"].(float64)
	for _, original := range llama3Lengths(theta, headDim, largest, factors) {
		r := model.RoPE{Type: "llama3", Theta: theta, Dim: headDim, Factor: largest, Original: original, LowFreqFactor: 1, HighFreqFactor: 4}
		want, same := llama3Factors(r), len(factors) == headDim/2
		for j := 0; same && j < len(want); j++ {
			d := float64(want[j]-factors[j]) / float64(want[j])
			same = d < 1e-5 && d > -1e-5
		}
		if same {
			p["rope_type"], p["factor"], p["original_max_position_embeddings"] = "llama3", largest, int(original)
			p["low_freq_factor"], p["high_freq_factor"] = 1.0, 4.0
			return
		}
	}
	i.fail("tensor %s: found %s, expected the factors of Llama 3's scaling", ropeFactors, fmt.Sprint(factors[:min(4, len(factors))]))
}

// llama3Lengths returns lengths before scaling that may have given the factors: those
// that follow from interpolated frequencies, and powers of two.
func llama3Lengths(theta float64, headDim int, largest float64, factors []float32) (lengths []float64) {
	frequencies := model.RoPE{Type: "default", Theta: theta, Dim: headDim}.Frequencies(0)
	for j, f := range factors[:min(len(factors), len(frequencies))] {
		if f := float64(f); f > 1 && f < largest {
			share := (1/f - 1/largest) / (1 - 1/largest)
			lengths = append(lengths, math.Round(2*math.Pi/float64(frequencies[j])*(1+3*share)))
		}
	}
	for n := 16.0; n <= 1<<20; n *= 2 {
		lengths = append(lengths, n)
	}
	return lengths
}

// yarnFactor returns the factor of attention that yarn has by default (Peng et al.
// 2023, arXiv 2309.00071, section 3.4), and llama.cpp applies by itself.
func yarnFactor(factor float64) float64 { return 1 + 0.1*math.Log(factor) }
