package nn

import (
	"fmt"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// Inputs are the tokens that a model reads, one behind the other without
// padding. Token i sees the keys [Lo[i], Hi[i]): of the same tokens, or, with
// a cache, of the cache.
type Inputs struct {
	Tokens, Positions, Lo, Hi graph.Tensor // i32 [n]
}

// Names of the inputs' params, and of the bounded dimension n.
const (
	TokensParam    = "input.tokens"
	PositionsParam = "input.positions"
	LoParam        = "input.lo"
	HiParam        = "input.hi"
	LabelsParam    = "input.labels"
	OffsetParam    = "cache.offset"
	TokensDim      = "tokens"
)

// NewInputs declares inputs of at most max tokens.
func NewInputs(g *graph.Graph, max int) Inputs {
	n := g.Bound(TokensDim, max)
	return Inputs{
		Tokens:    g.Param(TokensParam, tensor.I32, n),
		Positions: g.Param(PositionsParam, tensor.I32, n),
		Lo:        g.Param(LoParam, tensor.I32, n),
		Hi:        g.Param(HiParam, tensor.I32, n),
	}
}

// Cache holds the keys and values of earlier tokens, [Max, size] for each
// layer, in params that a run updates: the new rows go in at OffsetParam.
type Cache struct {
	Max     int
	Entries []CacheEntry // in the order in which the layers were built
}

// CacheEntry is the keys or the values of one layer.
type CacheEntry struct {
	Param   string
	Size    int
	Updated graph.Tensor
}

// Attention lets q look at k and v and at what the cache holds of earlier tokens.
func (b *Builder) Attention(in Inputs, q, k, v graph.Tensor, a ir.AttentionAttr) graph.Tensor {
	if c := b.cache; c != nil && k.Valid() && v.Valid() {
		layer := len(c.Entries) / 2
		k = b.cached(fmt.Sprintf("cache.%d.keys", layer), k)
		v = b.cached(fmt.Sprintf("cache.%d.values", layer), v)
	}
	return q.Attention(k, v, in.Lo, in.Hi, a)
}

func (b *Builder) cached(name string, x graph.Tensor) graph.Tensor {
	size := x.Type().Last()
	table := b.G.Param(name, tensor.F32, ir.Static(b.cache.Max), size)
	offset := b.G.Param(OffsetParam, tensor.I32, ir.Static(1))
	all := table.UpdateRows(x, offset)
	b.cache.Entries = append(b.cache.Entries, CacheEntry{name, size.N, all})
	return all
}

// Stream numbers a place that draws random numbers; two places of a model
// never share one.
func Stream(name string) uint32 {
	h := uint32(2166136261) // FNV-1a
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return h
}
