package cpu

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/tensor"
)

// large is a layer with an adapter, a bias and an addend, and the loss of a head, forward
// and backward: products of all layouts with many columns.
func large(w tensor.DType) (*graph.Graph, *graph.Program) {
	const in, out, rank, vocab = 576, 1000, 8, 1500
	g := graph.New()
	n, s := g.Bound("n", 300), ir.Static
	x, z := g.Param("x", tensor.F32, n, s(in)), g.Param("z", tensor.F32, n, s(out))
	a, b := g.Param("a", tensor.F32, s(rank), s(in)), g.Param("b", tensor.F32, s(out), s(rank))
	y := x.LoRA(g.Param("w", w, s(out), s(in)), g.Param("bias", tensor.F32, s(out)), x.MatMulT(a), b, 2).Add(z)
	back := y.Linear(g.Param("v", w, s(in), s(out)), graph.Tensor{})
	loss := back.LinearCrossEntropy(g.Param("head", tensor.BF16, s(vocab), s(in)), g.Param("labels", tensor.I32, n))
	p := g.Program().Result("loss", loss).Result("y", y)
	for i, d := range g.Gradients(loss, []graph.Tensor{x, a, b}, false) {
		p.Result(fmt.Sprint("gradient", i), d)
	}
	return g, p
}

// TestPieces: a run that gives way has the bits of one that does not, whatever its rows,
// types and instructions are, and rests between the pieces of its products.
func TestPieces(t *testing.T) {
	before := pieceFlops
	pieceFlops = 1
	defer func() { pieceFlops = before }()
	for _, isa := range gemm.Supported() {
		t.Setenv(gemm.EnvCPU, isa.String())
		for i, o := range []backend.Options{{Threads: 1}, {Threads: 2, BatchInvariant: true}, {Threads: 3, Precision: backend.BF16}} {
			for _, w := range [][]tensor.DType{{tensor.F32, tensor.BF16, tensor.NF4}, {tensor.F32, tensor.BF16}, {tensor.F16, tensor.BF16, tensor.Q8}}[i] {
				t.Run(fmt.Sprint(isa, o.Threads, w), func(t *testing.T) {
					dev, err := Open(o)
					require.NoError(t, err)
					defer dev.Close()
					g, p := large(w)
					c, err := p.StoreBF16(dev, 0).Compile(dev)
					require.NoError(t, err)
					defer c.Close()
					e, err := dev.Compile(c.Program())
					require.NoError(t, err)
					defer e.Close()
					all := []int{9, 70, 300}
					if isa == gemm.Portable { // slow
						all = all[:2]
						if os.Getenv("LORAFUSE_LONG") == "" {
							all = all[:1]
						}
					}
					for _, rows := range all {
						launches := 0
						gives := backend.WithYield(t.Context(), func() func() { launches++; return func() {} })
						want, got := runLarge(t, t.Context(), dev, e, g, c.Program(), rows), runLarge(t, gives, dev, e, g, c.Program(), rows)
						for name := range want {
							assert.True(t, bytes.Equal(want[name], got[name]), "%s of %d rows", name, rows)
						}
						require.Greater(t, launches, len(c.Program().Launches)+4)
					}
				})
			}
		}
	}
}

func runLarge(t *testing.T, ctx context.Context, dev *Device, e backend.Executable, g *graph.Graph, p *ir.Program, rows int) map[string][]byte {
	args := backend.Args{Dims: slices.Clone(g.IR().MaxDims())}
	args.Dims[1] = rows
	r := rand.New(rand.NewPCG(5, 5))
	for _, arg := range p.Args {
		b, err := dev.Alloc(arg.Type.Bytes(g.IR().MaxDims()))
		require.NoError(t, err)
		defer b.Free()
		args.Buffers = append(args.Buffers, b)
		data := b.(*buffer).data
		switch d := arg.Type.DType; {
		case arg.Written:
		case d == tensor.I32:
			for i, y := 0, view[int32](data, len(data)/4); i < len(y); i++ {
				y[i] = int32(r.IntN(1500)) - int32(r.IntN(2))*2000
			}
		case d == tensor.F32:
			for i, x := 0, view[float32](data, len(data)/4); i < len(x); i++ {
				x[i] = float32(r.NormFloat64())
			}
		case d.Quantized():
			values := make([]float32, len(data)/d.BlockBytes()*tensor.QuantBlock)
			for i := range values {
				values[i] = float32(r.NormFloat64()) / 30
			}
			require.NoError(t, quant.Quantize(data, values, d))
		default:
			for i, x := 0, view[uint16](data, len(data)/2); i < len(x); i++ {
				x[i] = uint16(0x2c00 + r.IntN(0x100) | r.IntN(2)<<15)
			}
		}
	}
	_, err := e.Run(ctx, args)
	require.NoError(t, err)
	results := map[string][]byte{}
	for i, arg := range p.Args {
		if arg.Written {
			results[arg.Name] = slices.Clone(args.Buffers[i].(*buffer).data[:arg.Type.Bytes(args.Dims)])
		}
	}
	return results
}
