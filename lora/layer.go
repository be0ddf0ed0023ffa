package lora

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/safetensors"
)

// Layer is a single LoRA layer without a model: y = Scale·x Aᵀ Bᵀ. Its matrices have
// the layout of an adapter folder. It can be computed directly ([Layer.Forward]), or
// used and trained in a graph ([Layer.Apply], [Layer.Linear]).
type Layer struct {
	In, Out, Rank int
	Alpha         float32
	A             []float32 // [rank, in]
	B             []float32 // [out, rank]
	// RSLoRA scales by Alpha/√Rank instead of Alpha/Rank (Kalajdzievski 2023, arXiv
	// 2312.03732).
	RSLoRA bool
	// Dropout is the probability that training zeroes an input.
	Dropout float64
	// Stream is the number of the layer's dropout stream, unique within a model.
	Stream uint32

	view [2]*safetensors.View // the mapping that contains A and B, if any
}

// The names of the tensors of a saved Layer: in PEFT's layout, and transposed.
const (
	layerA, layerB           = "lora_A.weight", "lora_B.weight"
	transposedA, transposedB = "lora_a", "lora_b"
)

// NewLayer returns a layer with A uniform in ±1/√in, drawn with seed, and B zero. It
// has no effect until it is trained.
func NewLayer(in, out, rank int, alpha float32, seed uint64) (*Layer, error) {
	l := &Layer{In: in, Out: out, Rank: rank, Alpha: alpha}
	if err := l.checkSizes(); err != nil {
		return nil, err
	}
	t := Target{Module: Module{Name: transposedA, Kind: Linear, In: in, Out: out}, Rank: rank}
	w, err := t.Initialize(seed, nil)
	if err != nil {
		return nil, err
	}
	l.A, l.B = w[RoleA], w[RoleB]
	return l, nil
}

// NumParams is the number of trained parameters, Rank·(In+Out).
func (l *Layer) NumParams() int { return l.Rank * (l.In + l.Out) }

// Scale is Alpha/Rank, or Alpha/√Rank with RSLoRA.
func (l *Layer) Scale() float32 { return float32(scale(float64(l.Alpha), l.Rank, l.RSLoRA)) }

// Forward computes dst = Scale·x Aᵀ Bᵀ for batch rows, without dropout: x has batch·In
// elements, dst batch·Out. Sums are accumulated in float64. It fails with ErrShape if a
// length does not fit.
func (l *Layer) Forward(dst, x []float32, batch int) error {
	return l.forward(dst, x, batch, func(_ int, v float32) float32 { return v })
}

// ForwardDropout computes Forward with the dropout mask of seed, step and Stream, the
// same mask as in a graph with [graph.Graph.Key].
func (l *Layer) ForwardDropout(dst, x []float32, batch int, seed uint64, step uint32) error {
	mask, up := philox.NewMask(seed, step, l.Stream, l.Dropout), float32(1/(1-l.Dropout))
	if l.Dropout == 0 {
		return l.Forward(dst, x, batch)
	}
	return l.forward(dst, x, batch, func(i int, v float32) float32 {
		if !mask.Keep(uint64(i)) {
			return 0
		}
		return v * up
	})
}

// forward computes Forward with drop applied to each element of x.
func (l *Layer) forward(dst, x []float32, batch int, drop func(i int, v float32) float32) error {
	if err := l.check(); err != nil {
		return err
	}
	if batch < 0 || len(x) != batch*l.In || len(dst) != batch*l.Out {
		return fmt.Errorf("lora: forward of %d rows through a layer of %d→%d: x has %d elements, expected %d, dst %d, expected %d: %w",
			batch, l.In, l.Out, len(x), batch*l.In, len(dst), batch*l.Out, ErrShape)
	}
	in, h, s := make([]float64, l.In), make([]float64, l.Rank), float64(l.Scale())
	for row := range batch {
		for i := range in {
			at := row*l.In + i
			in[i] = float64(drop(at, x[at]))
		}
		for k := range h {
			h[k] = s * dot(l.A[k*l.In:(k+1)*l.In], in)
		}
		for j := range l.Out {
			dst[row*l.Out+j] = float32(dot(l.B[j*l.Rank:(j+1)*l.Rank], h))
		}
	}
	return nil
}

// dot returns Σ aᵢ·bᵢ. The conversion prevents fused multiply-add, which would change
// bits.
func dot(a []float32, b []float64) (sum float64) {
	for i, v := range a {
		sum += float64(float64(v) * b[i])
	}
	return sum
}

// Merge adds Scale·B A to the weight w [out, in] of a linear layer, which then computes
// the combined result without this layer. It fails with ErrShape if the length does not
// fit.
func (l *Layer) Merge(w []float32) error {
	if err := l.check(); err != nil {
		return err
	}
	if len(w) != l.Out*l.In {
		return fmt.Errorf("lora: merge a layer of %d→%d: the weight has %d elements, expected %d: %w", l.In, l.Out, len(w), l.Out*l.In, ErrShape)
	}
	s, row := float64(l.Scale()), make([]float64, l.In)
	for j := range l.Out {
		clear(row)
		for k, b := range l.B[j*l.Rank : (j+1)*l.Rank] {
			for i, a := range l.A[k*l.In : (k+1)*l.In] {
				row[i] += float64(float64(b) * float64(a))
			}
		}
		for i, v := range row {
			w[j*l.In+i] += float32(s * v)
		}
	}
	return nil
}

// checkSizes reports dimensions that no layer has.
func (l *Layer) checkSizes() error {
	const limit = 1 << 30 // the product of two then fits in an int
	for _, n := range []int{l.In, l.Out, l.Rank} {
		if n <= 0 || n > limit {
			return fmt.Errorf("lora: layer of in %d, out %d, rank %d: %w", l.In, l.Out, l.Rank, ErrShape)
		}
	}
	if !(l.Dropout >= 0 && l.Dropout < 1) {
		return configError("lora_dropout", "found %v, expected 0 ≤ p < 1", l.Dropout)
	}
	return nil
}

func (l *Layer) check() error {
	if err := l.checkSizes(); err != nil {
		return err
	}
	if len(l.A) != l.In*l.Rank || len(l.B) != l.Rank*l.Out {
		return fmt.Errorf("lora: layer of in %d, out %d, rank %d: A has %d elements, B %d: %w", l.In, l.Out, l.Rank, len(l.A), len(l.B), ErrShape)
	}
	return nil
}
