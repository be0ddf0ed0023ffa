package gputest

import (
	"math"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// Tunable is a GPU whose thresholds can be changed.
type Tunable interface {
	backend.Device
	Thresholds() gpu.Thresholds
	SetThresholds(t gpu.Thresholds)
}

// Thresholds checks products of few, some and many rows, those of an adapter, and attention over pages with each
// threshold of the device so low and so high that one of its variants computes them all.
func Thresholds(t *testing.T, dev Tunable) {
	v := newValues(12)
	var outs []graph.Tensor
	for _, s := range []struct{ m, n, k int }{{4, 40, 512}, {40, 72, 512}, {200, 264, 256}} {
		p := ir.Product{A: v.floats(tensor.F32, 1, s.m, s.k).Value(), B: v.floats(tensor.BF16, 1, s.n, s.k).Value(), TB: true, Alpha: 1}
		outs = append(outs, v.g.Gemm([]ir.Product{p}, v.floats(tensor.F32, 1, s.n), graph.Tensor{}))
	}
	a := ir.Product{A: v.floats(tensor.BF16, 1, 200, 256).Value(), B: v.floats(tensor.F32, 1, 16, 256).Value(), TB: true, Alpha: 0.5}
	outs = append(outs, v.g.Gemm([]ir.Product{a}, graph.Tensor{}, graph.Tensor{}), pagedAttention(v))
	ids := make([]ir.Value, len(outs))
	for i, o := range outs {
		ids[i] = o.Value()
	}
	want, err := v.g.IR().Reference(ids, v.hosts, nil)
	require.NoError(t, err)
	usual := dev.Thresholds()
	defer dev.SetThresholds(usual)
	fields := reflect.TypeFor[gpu.Thresholds]()
	for i := range fields.NumField() {
		if reflect.ValueOf(usual).Field(i).Int() == 0 {
			continue // the device has no such kernels
		}
		for _, end := range []int64{1, math.MaxInt32} {
			now := usual
			reflect.ValueOf(&now).Elem().Field(i).SetInt(end)
			dev.SetThresholds(now)
			for j, got := range v.on(t, dev, outs) {
				requireClose(t, want[j].Data, got, 0.03, "%s = %d, output %d", fields.Field(i).Name, end, j)
			}
		}
	}
}

// pagedAttention returns the attention of 70 tokens behind 26 others, over pages in reverse order.
func pagedAttention(v *values) graph.Tensor {
	const queries, past, page, heads, keyHeads, size = 70, 26, 16, 4, 2, 32
	const keys = queries + past
	var lo, hi, pages []int64
	for i := range int64(queries) {
		lo, hi = append(lo, 0), append(hi, past+i+1)
	}
	for i := range int64(keys / page) {
		pages = append(pages, keys/page-1-i)
	}
	q, k, w := v.floats(tensor.F32, 1, queries, heads*size), v.floats(tensor.F32, 1, keys, keyHeads*size), v.floats(tensor.F32, 1, keys, keyHeads*size)
	attr := ir.AttentionAttr{Heads: heads, KVHeads: keyHeads, HeadDim: size, Scale: float32(1 / math.Sqrt(size)), Page: page}
	return q.Attention(k, w, v.words(tensor.I32, lo...), v.words(tensor.I32, hi...), attr, v.words(tensor.I32, pages...))
}
