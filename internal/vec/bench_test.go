package vec

import (
	"fmt"
	"testing"

	"github.com/lorafuse/lorafuse/internal/philox"
)

// Benchmarks report ns per element for every implementation, on rows that fit
// the first-level cache and on arrays that do not.
func BenchmarkKernels(b *testing.B) {
	mask := philox.NewMask(1, 2, 3, 0.1)
	opt := adamW{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.01}
	for _, n := range []int{2048, 1 << 20} {
		x, y, z, w := random(1, n, 1), random(2, n, 1), random(3, n, 1), random(4, n, 1)
		v, bits := make([]float32, n), make([]byte, n/8)
		for _, c := range []struct {
			name string
			run  func()
		}{
			{"add", func() { Add(z, x, y) }},
			{"mul", func() { Mul(z, x, y) }},
			{"axpy", func() { Axpy(z, 1e-3, x) }},
			{"sum", func() { Sum(x) }},
			{"dot", func() { Dot(x, y) }},
			{"max", func() { Max(x) }},
			{"exp", func() { Apply(ExpOp, z, x) }},
			{"softmax", func() { Softmax(z, x) }},
			{"logsumexp", func() { LogSumExp(x) }},
			{"crossentropygrad", func() { CrossEntropyGrad(z, x, 5, 3, 1) }},
			{"silu", func() { Activate(SiLU, z, x) }},
			{"swiglu", func() { GLU(SiLU, z, x, y) }},
			{"swiglugrad", func() { GLUGrad(SiLU, z, v, w, x, y) }},
			{"geglu", func() { GLU(GELU, z, x, y) }},
			{"geglugrad", func() { GLUGrad(GELU, z, v, w, x, y) }},
			{"geglutanh", func() { GLU(GELUTanh, z, x, y) }},
			{"geglutanhgrad", func() { GLUGrad(GELUTanh, z, v, w, x, y) }},
			{"rmsnorm", func() { RMSNorm(z, x, y, 1e-6) }},
			{"rmsnormgrad", func() { RMSNormGrad(z, nil, w, x, y, 1e-6) }},
			{"layernorm", func() { LayerNorm(z, x, y, w, 1e-6) }},
			{"rotary64", func() { Rotary(z, x, 64, y[:32], w[:32], false) }},
			{"rotary128", func() { Rotary(z, x, 128, y[:64], w[:64], false) }},
			{"adamw", func() { opt.Step(z, w, v, x, 10) }},
			{"dropout", func() { Dropout(z, x, mask, 0, 1.1) }},
			{"keep", func() { Keep(bits[:n/8], mask, 0) }},
			{"masked", func() { Masked(z, x, bits, 0, 1.1) }},
			{"tanh", func() { Apply(Tanh, z, x) }},
		} {
			for _, k := range available() {
				b.Run(fmt.Sprintf("%s/%d/%s", c.name, n, k.name), func(b *testing.B) {
					chosen := active
					active = k
					defer func() { active = chosen }()
					clear(v)
					b.ReportAllocs()
					for b.Loop() {
						c.run()
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/elem")
				})
			}
		}
	}
}

// BenchmarkPanel reads a cache of 512 keys for some heads of a group.
func BenchmarkPanel(b *testing.B) {
	const keys, stride = 512, 512
	for _, d := range []int{64, 128} {
		for _, n := range []int{1, 2, 4, 7} {
			p := Panel{Rows: random(1, keys*stride, 1), Stride: stride, Width: d, Count: keys}
			x, w := random(2, n*d, 1), random(3, n*keys, 1e-3)
			for _, k := range available() {
				run := func(name string, f func()) {
					b.Run(fmt.Sprintf("%s/dim%d/heads%d/%s", name, d, n, k.name), func(b *testing.B) {
						chosen := active
						active = k
						defer func() { active = chosen }()
						b.SetBytes(int64(4 * n * keys * d))
						b.ReportAllocs()
						for b.Loop() {
							f()
						}
					})
				}
				run("dot", func() { p.Dot(w, keys, x, d, n) })
				run("addto", func() { p.AddTo(x, d, w, keys, n) })
			}
		}
	}
}
