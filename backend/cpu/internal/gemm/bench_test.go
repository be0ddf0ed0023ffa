package gemm_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/pool"
)

// shape is a product as a model has it. xWᵀ: weights [out,in]; dyW: their
// gradient's use.
type shape struct {
	name      string
	m, n, k   int
	rank      int // of a second pair, or 0
	ta, tb    bool
	b         gemm.Elem
	precision gemm.Elem // BF16: operands may be rounded
}

func xWt(m, k, n int, w gemm.Elem) shape {
	return shape{name: "xWt", m: m, n: n, k: k, tb: true, b: w}
}

func dyW(m, k, n int, w gemm.Elem) shape {
	return shape{name: "dyW", m: m, n: n, k: k, b: w}
}

func lora(s shape, rank int) shape {
	s.name, s.rank = s.name+"+lora", rank
	return s
}

var linear = []shape{
	xWt(64, 2048, 2048, gemm.F32), xWt(64, 2048, 5632, gemm.F32), xWt(512, 2048, 2048, gemm.F32),
	xWt(512, 2048, 2048, gemm.BF16), xWt(512, 2048, 2048, gemm.F16), lora(xWt(512, 2048, 2048, gemm.BF16), 16),
	xWt(512, 2048, 5632, gemm.F32), xWt(2048, 2048, 5632, gemm.F32), xWt(2048, 2048, 5632, gemm.BF16),
	dyW(512, 5632, 2048, gemm.F32), dyW(2048, 5632, 2048, gemm.F32), dyW(2048, 2048, 2048, gemm.F32), dyW(512, 2048, 2048, gemm.BF16), lora(dyW(512, 2048, 2048, gemm.BF16), 16),
}

// few is products of a few rows, of which the weights are read where they lie.
var few = []shape{
	xWt(2, 2048, 2048, gemm.BF16), xWt(3, 2048, 2048, gemm.BF16), xWt(4, 2048, 2048, gemm.BF16), xWt(6, 2048, 2048, gemm.BF16), xWt(8, 2048, 2048, gemm.BF16), xWt(8, 2048, 8192, gemm.BF16),
	xWt(16, 2048, 2048, gemm.BF16), xWt(16, 2048, 8192, gemm.BF16), xWt(16, 5632, 2048, gemm.BF16), xWt(32, 2048, 2048, gemm.BF16), xWt(48, 2048, 2048, gemm.BF16),
	xWt(64, 2048, 2048, gemm.BF16), xWt(64, 2048, 5632, gemm.BF16),
	lora(xWt(8, 2048, 2048, gemm.BF16), 16), lora(xWt(32, 2048, 2048, gemm.BF16), 16),
	xWt(8, 2048, 2048, gemm.F32), xWt(16, 2048, 2048, gemm.F32), xWt(32, 2048, 2048, gemm.F32), xWt(64, 2048, 2048, gemm.F32),
	xWt(8, 2048, 2048, gemm.F16), xWt(32, 2048, 2048, gemm.F16),
	dyW(4, 2048, 2048, gemm.BF16), dyW(8, 2048, 2048, gemm.BF16), dyW(16, 2048, 2048, gemm.BF16), dyW(32, 2048, 2048, gemm.BF16),
	dyW(16, 512, 1408, gemm.BF16), dyW(16, 2048, 64, gemm.F32),
}

// rounded is the shapes with products of bfloat16.
func rounded(shapes []shape) []shape {
	var r []shape
	for _, s := range shapes {
		s.precision, s.name = gemm.BF16, s.name+"~"
		r = append(r, s)
	}
	return r
}

var adapter = []shape{
	{name: "xAt", m: 1024, n: 8, k: 2048, tb: true}, {name: "xAt", m: 1024, n: 16, k: 2048, tb: true}, {name: "xAt", m: 1024, n: 32, k: 2048, tb: true}, {name: "xAt", m: 1024, n: 64, k: 2048, tb: true},
	{name: "hBt", m: 1024, n: 2048, k: 16, tb: true}, {name: "dyB", m: 1024, n: 16, k: 2048},
	{name: "dA", m: 16, n: 2048, k: 1024, ta: true}, {name: "dB", m: 2048, n: 16, k: 1024, ta: true},
	{name: "dA", m: 64, n: 2048, k: 1024, ta: true}, {name: "dB", m: 2048, n: 64, k: 1024, ta: true},
}

var decode = []shape{
	xWt(1, 2048, 2048, gemm.BF16), xWt(1, 2048, 8192, gemm.BF16), xWt(1, 2048, 32768, gemm.BF16), xWt(1, 2048, 8192, gemm.F16), xWt(1, 2048, 8192, gemm.F32),
	lora(xWt(1, 2048, 2048, gemm.BF16), 16), xWt(1, 16, 1408, gemm.F32), xWt(2, 2048, 8192, gemm.BF16), xWt(4, 2048, 8192, gemm.BF16), xWt(8, 2048, 2048, gemm.BF16), xWt(8, 2048, 8192, gemm.BF16),
	xWt(16, 2048, 8192, gemm.BF16), xWt(32, 2048, 2048, gemm.BF16), dyW(1, 2048, 2048, gemm.BF16), dyW(8, 2048, 2048, gemm.BF16),
}

// attention blocks, one worker each.
var blocks = []shape{
	{name: "qKt", m: 64, n: 64, k: 64, tb: true}, {name: "qKt", m: 64, n: 128, k: 128, tb: true}, {name: "pV", m: 64, n: 64, k: 64}, {name: "pV", m: 64, n: 128, k: 128},
	{name: "qKt", m: 4, n: 512, k: 64, tb: true}, {name: "pV", m: 4, n: 64, k: 512},
}

func BenchmarkLinear(b *testing.B)  { benchmark(b, linear, (*gemm.Engine).Run) }
func BenchmarkRounded(b *testing.B) { benchmark(b, rounded(linear), (*gemm.Engine).Run) }
func BenchmarkFew(b *testing.B)     { benchmark(b, append(few, rounded(few)...), (*gemm.Engine).Run) }
func BenchmarkAdapter(b *testing.B) {
	benchmark(b, append(adapter, rounded(adapter)...), (*gemm.Engine).Run)
}
func BenchmarkDecode(b *testing.B)    { benchmark(b, decode, (*gemm.Engine).Run) }
func BenchmarkAttention(b *testing.B) { benchmark(b, blocks, serial) }

func serial(e *gemm.Engine, c *gemm.Call) { e.Serial(0, c) }

// benchmark reports the speed by the median and by the fastest call, their
// shares of the peak measured just before and after, and, for weights that are read once,
// the bandwidth. The number of workers is GOMAXPROCS: -cpu 1, or 2, but not a list of
// them: the first of a list runs with the last one's (B.Loop, Go 1.26).
func benchmark(b *testing.B, shapes []shape, run func(*gemm.Engine, *gemm.Call)) {
	for _, isa := range gemm.Supported() {
		for _, s := range shapes {
			b.Run(fmt.Sprintf("%v/%s/m=%d/n=%d/k=%d/r=%d/%v", isa, s.name, s.m, s.n, s.k, s.rank, s.b), func(b *testing.B) {
				p := pool.New(0)
				defer p.Close()
				e := gemm.NewISA(p, isa)
				e.SetPrecision(s.precision)
				c, depth := s.call(b)
				e.Reserve(e.Need(c))
				run(e, c)
				peak := e.Peak()
				took := make([]float64, 0, 1<<16)
				b.ReportAllocs()
				for b.Loop() {
					start := time.Now()
					run(e, c)
					if len(took) < cap(took) {
						took = append(took, time.Since(start).Seconds())
					}
				}
				peak = max(peak, e.Peak())
				slices.Sort(took)
				flops, median := 2*float64(s.m*s.n*depth), took[len(took)/2]
				b.ReportMetric(1e-9*flops/median, "GFLOP/s")
				b.ReportMetric(100*flops/median/peak, "%peak")
				b.ReportMetric(1e-9*flops/took[0], "best-GFLOP/s")
				b.ReportMetric(100*flops/took[0]/peak, "best-%peak")
				if s.m < 16 {
					b.ReportMetric(1e-9*float64(s.n*s.k*s.b.Size())/median, "GB/s")
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// call is the shape on random matrices, and the sum of its K.
func (s shape) call(tb cleaner) (*gemm.Call, int) {
	r := rand.New(rand.NewPCG(1, 2))
	c := &gemm.Call{M: s.m, N: s.n, LDC: s.n, C: make([]float32, s.m*s.n)}
	a, b := newMatrix(tb, r, s.m, s.k, gemm.F32, s.ta, 0), newMatrix(tb, r, s.k, s.n, s.b, s.tb, 0)
	c.Pairs = append(c.Pairs, gemm.Pair{A: a.Matrix, B: b.Matrix, K: s.k, Alpha: 1})
	if s.rank > 0 {
		a, b := newMatrix(tb, r, s.m, s.rank, gemm.F32, s.ta, 0), newMatrix(tb, r, s.rank, s.n, gemm.F32, s.tb, 0)
		c.Pairs = append(c.Pairs, gemm.Pair{A: a.Matrix, B: b.Matrix, K: s.rank, Alpha: 2})
	}
	return c, s.k + s.rank
}

// BenchmarkCycle multiplies with weights that come from memory each time, as in
// decoding.
func BenchmarkCycle(b *testing.B) {
	const size, part = 96 << 20, 16 << 20 // all, and what one iteration reads
	all := make([]byte, size)
	for i := range all {
		all[i] = byte(i*7>>3) & 0x3f
	}
	for _, isa := range gemm.Supported()[1:] {
		for _, s := range []shape{
			xWt(1, 512, 256, gemm.BF16), xWt(1, 512, 1408, gemm.BF16), xWt(1, 512, 8192, gemm.BF16), xWt(1, 1408, 512, gemm.BF16),
			xWt(1, 2048, 2048, gemm.BF16), xWt(1, 2048, 8192, gemm.BF16), xWt(1, 8192, 2048, gemm.BF16), xWt(1, 2048, 2048, gemm.F32),
			xWt(2, 2048, 2048, gemm.BF16), xWt(4, 2048, 2048, gemm.BF16), xWt(8, 2048, 2048, gemm.BF16), xWt(8, 512, 1408, gemm.BF16),
		} {
			b.Run(fmt.Sprintf("%v/%s/m=%d/n=%d/k=%d/%v", isa, s.name, s.m, s.n, s.k, s.b), func(b *testing.B) {
				p := pool.New(0)
				defer p.Close()
				e := gemm.NewISA(p, isa)
				w := gemm.Matrix{Elem: s.b, Stride: s.k, Trans: true}
				x, c := make([]float32, s.m*s.k), make([]float32, s.m*s.n)
				call := gemm.Call{M: s.m, N: s.n, C: c, LDC: s.n, Pairs: []gemm.Pair{{A: gemm.Of(x, s.k), B: w, K: s.k, Alpha: 1}}}
				e.Reserve(e.Need(&call))
				bytes, at, read := s.n*s.k*s.b.Size(), 0, 0
				for b.Loop() {
					for n := 0; n < part; n += bytes {
						if at+bytes > size {
							at = 0
						}
						call.Pairs[0].B.Data = unsafe.Pointer(&all[at])
						e.Run(&call)
						at, read = at+bytes, read+bytes
					}
				}
				b.ReportMetric(1e-9*float64(read)/b.Elapsed().Seconds(), "GB/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
