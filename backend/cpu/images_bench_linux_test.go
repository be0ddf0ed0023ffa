package cpu_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/dev/cputime"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// BenchmarkImages prints the least time of layers of autoencoders on images with so many
// channels, which scripts/bench_images.py compares with torch: processor time of one worker.
func BenchmarkImages(b *testing.B) {
	s := ir.Static
	convolution := func(stride, top int) func(g *graph.Graph, x graph.Tensor, c int) graph.Tensor {
		return func(g *graph.Graph, x graph.Tensor, c int) graph.Tensor {
			return x.Conv2D(g.Param("w", tensor.F32, s(c), s(3), s(3), s(c)), g.Param("b", tensor.F32, s(c)),
				ir.Conv2DAttr{Stride: stride, Top: top, Left: top, Bottom: 1, Right: 1})
		}
	}
	norm := func(g *graph.Graph, x graph.Tensor, c int) graph.Tensor {
		return x.GroupNorm(g.Param("w", tensor.F32, s(c)), g.Param("b", tensor.F32, s(c)), 32, 1e-6).Activate(ir.SiLU)
	}
	for _, size := range []struct{ channels, pixels int }{{128, 256}, {256, 128}, {512, 64}} {
		for _, layer := range []struct {
			name  string
			build func(g *graph.Graph, x graph.Tensor, c int) graph.Tensor
		}{{"conv", convolution(1, 1)}, {"half", convolution(2, 0)}, {"norm", norm}} {
			b.Run(fmt.Sprintf("%s/%d/%d", layer.name, size.channels, size.pixels), func(b *testing.B) {
				dev, err := cpu.Open(backend.Options{Threads: 1})
				require.NoError(b, err)
				defer func() { require.NoError(b, dev.Close()) }()
				g := graph.New()
				x := g.Param("x", tensor.F32, s(1), s(size.pixels), s(size.pixels), s(size.channels))
				e, err := g.Program().Result("y", layer.build(g, x, size.channels)).Compile(dev)
				require.NoError(b, err)
				defer func() { require.NoError(b, e.Close()) }()
				random := rand.New(rand.NewPCG(1, 2))
				for _, a := range e.Program().Args {
					values := make([]float32, a.Type.Shape.Elements(nil))
					for i := range values {
						values[i] = random.Float32() - 0.5
					}
					buf, err := dev.Alloc(4 * len(values))
					require.NoError(b, err)
					require.NoError(b, e.Bind(a.Name, buf))
					_, err = dev.Upload(buf, 0, tensor.BytesOf(values))
					require.NoError(b, err)
				}
				least := cputime.Least(b, 1, nil, func(int) { require.NoError(b, e.RunWait(context.Background())) })
				b.ReportMetric(least[0].Seconds()*1e3, "ms")
			})
		}
	}
}
