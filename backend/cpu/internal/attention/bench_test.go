package attention

import (
	"fmt"
	"testing"
)

// Benchmarks report GFLOP/s of the products that a causal mask leaves: two
// forward, five backward, each of 2·n²/2·HeadDim operations per head.
func BenchmarkTrain(b *testing.B) {
	for _, c := range []struct{ q, kv, dim, n, docs int }{
		{8, 4, 64, 256, 4}, {8, 4, 64, 1024, 1}, {16, 2, 64, 1024, 1}, {8, 8, 128, 1024, 1}, {8, 2, 128, 4096, 1},
	} {
		var lengths []int
		for range c.docs {
			lengths = append(lengths, c.n)
		}
		p := newProblem(1, causal(c.q, c.kv, c.dim, lengths...))
		flops := float64(c.docs) * float64(c.q) * float64(c.n) * float64(c.n+1) * float64(c.dim)
		for _, workers := range []int{1, 2} {
			e := newEngine(b, workers)
			name := fmt.Sprintf("%dx%d/heads%d-%d/dim%d/workers%d", c.docs, c.n, c.q, c.kv, c.dim, workers)
			r := p.run(b, e)
			b.Run("forward/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					_ = e.Forward(&p.Spec, r.o, r.lse, p.q, p.k, p.v)
				}
				b.ReportMetric(2*flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
			b.Run("backward/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					_ = e.Backward(&p.Spec, r.grad, p.dO, p.q, p.k, p.v, r.o, r.lse)
				}
				b.ReportMetric(5*flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}

// Decoding one token reads the whole cache once.
func BenchmarkDecode(b *testing.B) {
	for _, c := range []struct{ q, kv, dim, keys int }{
		{8, 4, 64, 64}, {8, 4, 64, 4096}, {8, 4, 64, 32768}, {32, 8, 64, 4096}, {8, 8, 128, 16384}, {14, 2, 64, 4096},
	} {
		s := Spec{QHeads: c.q, KVHeads: c.kv, HeadDim: c.dim, Keys: c.keys, Lo: []int32{0}, Hi: []int32{int32(c.keys)}}
		p := newProblem(1, s)
		for _, workers := range []int{1, 2} {
			e := newEngine(b, workers)
			r := p.forward(b, e)
			b.Run(fmt.Sprintf("keys%d/heads%d-%d/dim%d/workers%d", c.keys, c.q, c.kv, c.dim, workers), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					_ = e.Forward(&p.Spec, r.o, r.lse, p.q, p.k, p.v)
				}
				bytes := 2 * 4 * float64(c.keys*c.kv*c.dim)
				b.ReportMetric(bytes*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
			})
		}
	}
}
