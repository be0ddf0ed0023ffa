package ir

import (
	"fmt"
	"math"
	"sync"

	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/tensor"
)

// AdamW8Maps is the type of the code maps of 8-bit moments: a signed map for the first moment and an unsigned one for
// the second. [AdamW8MapValues] returns the maps of bitsandbytes.
var AdamW8Maps = f32(ShapeOf(2, 256))

// AdamW8MapValues returns the dynamic quantization maps of bitsandbytes.
func AdamW8MapValues() []float32 {
	signed, unsigned := quant.NewDynamic(true), quant.NewDynamic(false)
	return append(append([]float32(nil), signed.Values[:]...), unsigned.Values[:]...)
}

// AdamW8Scales returns the type of the scales of 8-bit moments: one per 256 elements of a parameter, in order.
func AdamW8Scales(param Type) Type {
	return f32(ShapeOf((param.Shape.Elements(nil) + quant.DynamicBlock - 1) / quant.DynamicBlock))
}

var _ = define(AdamW8, OpDef{Name: "AdamW8", NoGradient: true,
	Doc: "AdamW with moments of 8 bits (Dettmers et al. 2021, arXiv 2110.02861): p, codes of m and v [p, u8], scales of m and v " +
		"[one for 256 elements], gradient, maps of m and v [2,256], rates, scale; moments are decoded, make the step, and are encoded again",
	Infer: func(_ any, in []Type) ([]Type, error) {
		if len(in) != 9 {
			return nil, arity(9, in)
		}
		for _, d := range in[0].Shape {
			if d.Var != 0 {
				return nil, fmt.Errorf("%v has a bounded axis, expected sizes that are known", in[0])
			}
		}
		codes, scales := Type{tensor.U8, in[0].Shape}, AdamW8Scales(in[0])
		for i, want := range []Type{f32(in[0].Shape), codes, codes, scales, scales, f32(in[0].Shape), AdamW8Maps, AdamWRates, scalar} {
			if !in[i].Equal(want) {
				return nil, fmt.Errorf("input %d is %v, expected %v", i, in[i], want)
			}
		}
		return in[:5], nil
	},
	Decompose: decomposeAdamW8,
	Reference: func(attr any, in, outs []*Host) {
		f := func(h *Host) []float32 {
			x := make([]float32, len(h.Data))
			for i, v := range h.Data {
				x[i] = float32(v)
			}
			return x
		}
		b := func(h *Host) []uint8 {
			x := make([]uint8, len(h.Data))
			for i, v := range h.Data {
				x[i] = uint8(v)
			}
			return x
		}
		s := AdamW8State{P: f(in[0]), M: b(in[1]), V: b(in[2]), MScale: f(in[3]), VScale: f(in[4])}
		s.Step(attr.(AdamWAttr), f(in[5]), f(in[6]), [3]float32(f(in[7])), float32(in[8].Data[0]))
		for i := range outs[0].Data {
			outs[0].Data[i], outs[1].Data[i], outs[2].Data[i] = float64(s.P[i]), float64(s.M[i]), float64(s.V[i])
		}
		for i := range outs[3].Data {
			outs[3].Data[i], outs[4].Data[i] = float64(s.MScale[i]), float64(s.VScale[i])
		}
	},
	Flops:   func(_ any, in, _ []Type, dims []int) int { return 40 * in[0].Shape.Elements(dims) },
	InPlace: func(_ any, i int) int { return i },
})

// AdamW8State holds a parameter and its moments in 8 bits.
type AdamW8State struct {
	P              []float32
	M, V           []uint8   // codes
	MScale, VScale []float32 // one per 256 elements
}

// Step performs one step in place. It defines the operation to the last bit: the codes equal the ones of bitsandbytes.
func (s *AdamW8State) Step(a AdamWAttr, grad, maps []float32, rates [3]float32, scale float32) {
	if math.IsNaN(float64(scale)) || math.IsInf(float64(scale), 0) {
		return
	}
	signed, unsigned := AdamW8Codebooks(maps)
	for block := range s.MScale {
		s.Block(block, a, grad, signed, unsigned, rates, scale)
	}
}

// Block performs the step of one block of 256 elements.
func (s *AdamW8State) Block(block int, a AdamWAttr, grad []float32, signed, unsigned *quant.Dynamic, rates [3]float32, scale float32) {
	lo := block * quant.DynamicBlock
	hi := min(lo+quant.DynamicBlock, len(s.P))
	var moments [2][quant.DynamicBlock]float32
	m, v := moments[0][:hi-lo], moments[1][:hi-lo]
	signed.Decode(m, s.M[lo:hi], s.MScale[block])
	unsigned.Decode(v, s.V[lo:hi], s.VScale[block])
	p := s.P[lo:hi]
	beta1, beta2, eps := float32(a.Beta1), float32(a.Beta2), float32(a.Eps)
	rest1, rest2 := float64(float32(1-a.Beta1)), float32(1-a.Beta2)
	for i, g := range grad[lo:hi] {
		g = float32(g * scale)
		// Computed in float64, so that each sum is rounded once, as by a fused multiply-add.
		m[i] = float32(float64(float32(m[i]*beta1)) + float64(g)*rest1)
		v[i] = float32(float64(float32(v[i]*beta2)) + float64(float32(rest2*g))*float64(g))
		denominator := float32(float32(math.Sqrt(float64(v[i])))/rates[2]) + eps
		p[i] = float32(p[i]*rates[0]) - float32(float32(rates[1]*m[i])/denominator)
	}
	s.MScale[block] = signed.Encode(s.M[lo:hi], m)
	s.VScale[block] = unsigned.Encode(s.V[lo:hi], v)
}

// books caches the maps of the last call of AdamW8Codebooks and their codebooks.
var books struct {
	sync.Mutex
	maps             [512]float32
	signed, unsigned *quant.Dynamic
}

// AdamW8Codebooks returns the codebooks of maps [2,256], prepared for encoding. It keeps the last ones and is safe for
// concurrent use.
func AdamW8Codebooks(maps []float32) (signed, unsigned *quant.Dynamic) {
	books.Lock()
	defer books.Unlock()
	if books.signed == nil || books.maps != [512]float32(maps) {
		books.maps = [512]float32(maps)
		books.signed, books.unsigned = quant.DynamicOf(maps[:256]), quant.DynamicOf(maps[256:])
	}
	return books.signed, books.unsigned
}

// AdamW8 returns the parameter, the codes of its moments and their scales after one step.
func (g *Graph) AdamW8(p, m, v, mScale, vScale, grad, maps, rates, scale Value, a AdamWAttr) (out [5]Value) {
	out[0] = g.Apply(AdamW8, a, p, m, v, mScale, vScale, grad, maps, rates, scale)
	for i := range out {
		out[i] = g.Out(out[0], i)
	}
	return out
}
