package cpu

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// adapted is two layers of one x with adapters and something to be added, forward and
// backward, on up to 300 rows.
func adapted(dropout float64) (*graph.Graph, *graph.Program) {
	const in, out, rank = 160, 144, 40
	g := graph.New()
	n, s := g.Bound("n", 300), ir.Static
	x, z, key := g.Param("x", tensor.F32, n, s(in)), g.Param("z", tensor.F32, n, s(out)), graph.Tensor{}
	if dropout > 0 {
		key = g.Of(g.IR().Param("key", ir.RandomKey))
	}
	p := g.Program()
	var loss graph.Tensor
	of := []graph.Tensor{x}
	for i := range 2 {
		w := g.Param(fmt.Sprint("w", i), tensor.BF16, s(out), s(in))
		a, b := g.Param(fmt.Sprint("a", i), tensor.F32, s(rank), s(in)), g.Param(fmt.Sprint("b", i), tensor.F32, s(out), s(rank))
		y := x.LoRA(w, graph.Tensor{}, x.LoRADown(a, key, ir.DropoutAttr{P: dropout, Stream: uint32(i)}), b, 2).Add(z)
		if p.Result(fmt.Sprint("y", i), y); i == 0 {
			loss = y.SumSquares()
		} else {
			loss = loss.Add(y.SumSquares())
		}
		of = append(of, a, b)
	}
	for i, d := range g.Gradients(loss, of, false) {
		p.Result(fmt.Sprint("gradient", i), d)
	}
	return g, p
}

// runAdapted computes such a program on n rows with instructions of a set, and reports how many
// steps were computed by the ones behind them.
func runAdapted(t *testing.T, isa gemm.ISA, precision backend.Precision, dropout float64, rows int) (results map[string][]float32, joined int) {
	t.Setenv(gemm.EnvCPU, isa.String())
	profile := &backend.Profile{}
	dev, err := Open(backend.Options{Threads: 2, Precision: precision, Profile: profile})
	require.NoError(t, err)
	defer dev.Close()
	g, p := adapted(dropout)
	c, err := p.Compile(dev)
	require.NoError(t, err)
	defer c.Close()
	compiled, err := dev.Compile(c.Program())
	require.NoError(t, err)
	e := compiled.(*executable)
	defer e.Close()
	args := backend.Args{Dims: append([]int(nil), g.IR().MaxDims()...)}
	args.Dims[1] = rows
	r := rand.New(rand.NewPCG(5, 5))
	for _, arg := range c.Program().Args {
		b, err := dev.Alloc(arg.Type.Bytes(g.IR().MaxDims()))
		require.NoError(t, err)
		defer b.Free()
		args.Buffers = append(args.Buffers, b)
		data := b.(*buffer).data
		switch {
		case arg.Type.DType == tensor.BF16:
			for i, w := 0, view[uint16](data, len(data)/2); i < len(w); i++ {
				w[i] = uint16(0x3d00 + r.IntN(0x100) | r.IntN(2)<<15)
			}
		case arg.Type.DType == tensor.F32 && !arg.Written:
			for i, x := 0, view[float32](data, len(data)/4); i < len(x); i++ {
				x[i] = float32(r.NormFloat64())
			}
		}
	}
	for range 2 {
		_, err = e.Run(context.Background(), args)
		require.NoError(t, err)
	}
	results = map[string][]float32{}
	for i, arg := range c.Program().Args {
		if arg.Written {
			n := arg.Type.Bytes(args.Dims)
			results[arg.Name] = append([]float32(nil), view[float32](args.Buffers[i].(*buffer).data[:n], n/4)...)
		}
	}
	launches := 0
	for _, s := range e.steps {
		launches += 2 * len(s.launches)
		if s.later {
			joined++
		}
	}
	counted := 0
	for _, row := range profile.Rows() {
		counted += row.Calls
	}
	require.Equal(t, launches, counted)
	return results, joined
}

// Adapters that are computed with the products that read them give what they give alone, and
// what portable code does, with many rows and with few.
func TestJoinedSteps(t *testing.T) {
	for _, dropout := range []float64{0, 0.5} {
		for _, rows := range []int{1, 7, 150, 300} {
			want, none := runAdapted(t, gemm.Portable, backend.F32, dropout, rows)
			require.Zero(t, none)
			for _, isa := range gemm.Supported() {
				for _, precision := range []backend.Precision{backend.F32, backend.BF16} {
					name := fmt.Sprint(isa, precision, dropout, rows)
					got, joined := runAdapted(t, isa, precision, dropout, rows)
					switch { // x·Aᵀ of both, and without dropout dy·B of each
					case isa != gemm.AMX || rows < 150:
						require.Zero(t, joined, name)
					case dropout == 0:
						require.Equal(t, 3, joined, name)
					default:
						require.NotZero(t, joined, name)
					}
					for result, w := range want {
						requireNear(t, w, got[result], precision, name+" "+result)
					}
				}
			}
		}
	}
}

// requireNear compares with the largest of the results.
func requireNear(t *testing.T, want, got []float32, p backend.Precision, msg string) {
	t.Helper()
	size := float32(0)
	for _, v := range want {
		size = max(size, v, -v)
	}
	tol := 1e-5 * size
	if p == backend.BF16 {
		tol = 0.02 * size
	}
	for i := range want {
		if off := want[i] - got[i]; !(max(off, -off) <= tol) {
			require.InDelta(t, want[i], got[i], float64(tol), msg)
		}
	}
}
