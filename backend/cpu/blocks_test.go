package cpu

import (
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

// inBlocks is a layer with an adapter, experts in a stack and apart, a table of embeddings and the loss of a head,
// forward and backward, with weights of type w.
func inBlocks(w tensor.DType, vocab int) (*graph.Graph, *graph.Program) {
	const in, out, rank = 256, 768, 8
	g := graph.New()
	n, s := g.Bound("n", 120), ir.Static
	head := g.Param("head", w, s(vocab), s(in))
	x := g.Param("x", tensor.F32, n, s(in)).Add(head.Gather(g.Param("ids", tensor.I32, n)))
	a, b := g.Param("a", tensor.F32, s(rank), s(in)), g.Param("b", tensor.F32, s(out), s(rank))
	y := x.LoRA(g.Param("w", w, s(out), s(in)), g.Param("bias", tensor.F32, s(out)), x.MatMulT(a), b, 2)
	back := y.Linear(g.Param("v", w, s(in), s(out)), graph.Tensor{})
	chosen := g.Param("chosen", tensor.I32, n)
	stack := g.Param("stack", w, s(3), s(in), s(out))
	back = back.Add(y.RowsGemm(chosen, graph.RowsWeights{Matrices: []graph.Tensor{stack}, Stacked: true}, graph.Tensor{}))
	apart := graph.RowsWeights{}
	for i := range 3 {
		apart.Matrices = append(apart.Matrices, g.Param(fmt.Sprint("expert", i), w, s(in), s(out)))
	}
	back = back.Add(y.RowsGemm(chosen, apart, graph.Tensor{}))
	loss := back.LinearCrossEntropy(head, g.Param("labels", tensor.I32, n))
	p := g.Program().Result("loss", loss).Result("y", y)
	for i, d := range g.Gradients(loss, []graph.Tensor{a, b}, false) {
		p.Result(fmt.Sprint("gradient", i), d)
	}
	return g, p
}

// TestBlocks: products with weights in blocks have the bits of products with the widened weights.
func TestBlocks(t *testing.T) {
	for _, isa := range gemm.Supported() {
		if isa == gemm.Portable && os.Getenv("LORAFUSE_LONG") == "" {
			continue // slow
		}
		t.Setenv(gemm.EnvCPU, isa.String())
		for i, o := range []backend.Options{{Threads: 1}, {Threads: 2, BatchInvariant: true}, {Threads: 3, Precision: backend.BF16}} {
			for _, d := range [][]tensor.DType{{tensor.Q4_1, tensor.Q6_K}, {tensor.Q8_0, tensor.Z8}, {tensor.MXFP4, tensor.Z4}}[i] {
				t.Run(fmt.Sprint(isa, o.Threads, d), func(t *testing.T) {
					dev, err := Open(o)
					require.NoError(t, err)
					defer dev.Close()
					for _, rows := range []int{1, 5, 8, 9, 120} {
						want, got := runBlocks(t, dev, d, true, rows, 1500), runBlocks(t, dev, d, false, rows, 1500)
						for name := range want {
							assert.Equal(t, want[name], got[name], "%s of %d rows", name, rows)
						}
					}
				})
			}
		}
	}
}

// TestBlocksOfLargeHead: the gradient of a head with many rows, which is divided along them, is the same up to rounding.
func TestBlocksOfLargeHead(t *testing.T) {
	dev, err := Open(backend.Options{Threads: 2})
	require.NoError(t, err)
	defer dev.Close()
	want, got := runBlocks(t, dev, tensor.Q4_K, true, 5, 2*blockDepth+100), runBlocks(t, dev, tensor.Q4_K, false, 5, 2*blockDepth+100)
	assert.Equal(t, want["loss"], got["loss"])
	for name := range want {
		assert.InDeltaSlice(t, want[name], got[name], 1e-5, name)
	}
}

// runBlocks runs inBlocks with random blocks, widened before if wide is set.
func runBlocks(t *testing.T, dev *Device, d tensor.DType, wide bool, rows, vocab int) map[string][]float32 {
	dtype := d
	if wide {
		dtype = tensor.F32
	}
	g, p := inBlocks(dtype, vocab)
	c, err := p.Compile(dev)
	require.NoError(t, err)
	defer c.Close()
	e, err := dev.Compile(c.Program())
	require.NoError(t, err)
	defer e.Close()
	args := backend.Args{Dims: slices.Clone(g.IR().MaxDims())}
	args.Dims[1] = rows
	for _, arg := range c.Program().Args {
		b, err := dev.Alloc(arg.Type.Bytes(g.IR().MaxDims()))
		require.NoError(t, err)
		defer b.Free()
		args.Buffers = append(args.Buffers, b)
		data, r := b.(*buffer).data, rand.New(rand.NewPCG(7, uint64(len(arg.Name))<<8|uint64(arg.Name[0])))
		switch n := arg.Type.Shape.Elements(g.IR().MaxDims()); {
		case arg.Written:
		case arg.Type.DType == tensor.I32:
			for i, y := 0, view[int32](data, n); i < n; i++ {
				y[i] = int32(r.IntN(vocab))
				if arg.Name == "chosen" {
					y[i] = y[i]%4 - 1
				}
			}
		case slices.Contains([]string{"head", "w", "v", "stack", "expert0", "expert1", "expert2"}, arg.Name):
			blocks := data
			if wide {
				blocks = make([]byte, d.Bytes(n))
			}
			for i := range blocks {
				blocks[i] = byte(r.IntN(256)) & 0x2f // scales are small and positive
			}
			if wide {
				require.NoError(t, quant.Dequantize(view[float32](data, n), blocks, 0, d))
			}
		default:
			for i, x := 0, view[float32](data, n); i < n; i++ {
				x[i] = float32(r.NormFloat64())
			}
		}
	}
	_, err = e.Run(t.Context(), args)
	require.NoError(t, err)
	results := map[string][]float32{}
	for i, arg := range c.Program().Args {
		if arg.Written {
			results[arg.Name] = slices.Clone(view[float32](args.Buffers[i].(*buffer).data, arg.Type.Shape.Elements(args.Dims)))
		}
	}
	return results
}
