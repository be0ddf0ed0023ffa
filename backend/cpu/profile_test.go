package cpu_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// A profile counts the pairs of tokens that attention has worked on: documents
// in one axis do not see each other.
func TestProfileOfAttention(t *testing.T) {
	const heads, dim, rows, each = 2, 16, 4, 8
	p := &backend.Profile{}
	d, err := cpu.Open(backend.Options{Threads: 1, Profile: p})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	g := graph.New()
	n := ir.Static(rows * each)
	x := g.Param("x", tensor.F32, n, ir.Static(heads*dim))
	y := x.Attention(x, x, g.Param("lo", tensor.I32, n), g.Param("hi", tensor.I32, n), ir.AttentionAttr{Heads: heads, KVHeads: heads, HeadDim: dim, Scale: 1})
	lo, hi := make([]int32, rows*each), make([]int32, rows*each)
	for i := range lo {
		lo[i], hi[i] = int32(i/each*each), int32(i+1)
	}
	vector := func(ids []int32) *tensor.Tensor {
		return &tensor.Tensor{DType: tensor.I32, Shape: []int{len(ids)}, Data: tensor.BytesOf(ids)}
	}
	values, err := tensor.FromFloat32s(make([]float32, rows*each*heads*dim), rows*each, heads*dim)
	require.NoError(t, err)
	loss := y.Mul(y).Reshape(ir.Static(rows * each * heads * dim)).Sum(0)
	outs := append(g.Gradients(loss, []graph.Tensor{x}, false), y)
	_, err = graph.Eval(t.Context(), d, outs, map[string]*tensor.Tensor{"x": &values, "lo": vector(lo), "hi": vector(hi)}, nil)
	require.NoError(t, err)
	flops := map[string]int{}
	for _, r := range p.Rows() {
		flops[r.Op] += r.Flops
	}
	const pairs = rows * each * (each + 1) / 2
	assert.Equal(t, 2*2*pairs*heads*dim, flops["Attention"])
	assert.Equal(t, 5*2*pairs*heads*dim, flops["AttentionGrad"])
}
