package dit

import (
	"math"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// normEps is the epsilon of most norms.
const normEps = 1e-6

// timeChannels is the default number of sinusoids of a timestep.
const timeChannels = 256

// sinusoid returns [cos, sin] of scale·t·w with w_i = 10000^(−2i/channels), cosines first:
// the timestep embedding of Ho et al. 2020 (arXiv 2006.11239). Angles are float32, as in
// diffusers: models are trained with their rounding, up to 3e-5 at timestep 500.
func sinusoid(t, scale float32, channels int) []float32 {
	half := channels / 2
	out := make([]float32, 2*half)
	for i := range half {
		angle := scale * (t * frequency(i, half))
		sin, cos := math.Sincos(float64(angle))
		out[i], out[half+i] = float32(cos), float32(sin)
	}
	return out
}

// frequency returns e^x for the float32 exponent x = −ln(10000)·i/n, rounded to the nearest
// float32. PyTorch's own exponential misses it for some i, which depend on the processor.
func frequency(i, n int) float32 {
	return float32(math.Exp(float64(float32(-math.Log(10000)) * float32(i) / float32(n))))
}

// mlp returns linear_2(SiLU(linear_1(x))), the embedding of a timestep or of a pooled text
// embedding, with biases if bias is set.
func mlp(b *nn.Builder, x graph.Tensor, size int, bias bool) graph.Tensor {
	x = b.Linear("linear_1", x, size, bias)
	if !x.Valid() {
		return x
	}
	return b.Linear("linear_2", x.Activate(ir.SiLU), size, bias)
}

// feedForward returns net.2(GELU(net.0.proj(x))). The hidden layer is four times as wide.
func feedForward(b *nn.Builder, x graph.Tensor, size int) graph.Tensor {
	x = b.Linear("net.0.proj", x, 4*size, true)
	if !x.Valid() {
		return x
	}
	return b.Linear("net.2", x.Activate(ir.GELUTanh), size, true)
}

// normOut applies the last norm, modulated per sample by linear(c): scale, then shift.
func normOut(b *nn.Builder, s stream, x, c graph.Tensor, eps float32) graph.Tensor {
	if !x.Valid() {
		return x
	}
	e := chunks(b.Linear("linear", c, 2*x.Type().Last().N, true), 2)
	return s.modulated(x, e[1], e[0], eps)
}
