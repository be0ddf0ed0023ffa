package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// A run takes the arguments of its program and no others, and allocates nothing for them.
func TestAccept(t *testing.T) {
	rows := ir.Type{DType: tensor.F32, Shape: ir.Shape{{N: 1, Var: 1}, ir.Static(4)}}
	p := &ir.Program{
		Bounds: []ir.Bound{{}, {Name: "n", Max: 8}},
		Args:   []ir.Arg{{Name: "x", Type: rows}, {Name: "y", Type: rows, Written: true}},
	}
	r := &gpu.Run{Args: make([]gpu.Pointer, 2), Dims: make([]int, 2)}
	args := func(buffers int, dims ...int) backend.Args {
		return backend.Args{Buffers: make([]backend.Buffer, buffers), Dims: dims}
	}
	require.EqualError(t, r.Accept(p, args(1, 0, 3)), "1 buffers, expected 2")
	require.EqualError(t, r.Accept(p, args(2, 3)), "1 dimensions, expected 2")
	require.EqualError(t, r.Accept(p, args(2, 0, 0)), "n = 0, expected 1 to 8")
	require.EqualError(t, r.Accept(p, args(2, 0, 9)), "n = 9, expected 1 to 8")
	good := args(2, 0, 3)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		require.NoError(t, r.Accept(p, good))
		require.NoError(t, r.Take(p, 0, 100, 48, true))
		require.NoError(t, r.Take(p, 1, 200, 50, false))
	}))
	require.Equal(t, &gpu.Run{Args: []gpu.Pointer{100, 200}, Dims: []int{0, 3}}, r)
	require.EqualError(t, r.Take(p, 1, 300, 48, true), `the program writes "y", which is an imported buffer`)
	require.EqualError(t, r.Take(p, 1, 300, 47, false), `argument "y": 48 bytes of f32[v1,4] in a buffer of 47`)
	require.Equal(t, gpu.Pointer(200), r.Args[1], "it is as it was")
}
