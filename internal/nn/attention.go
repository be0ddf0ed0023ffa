package nn

import (
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// Cache holds the keys and values of earlier tokens, [Max, size] for each layer, in params
// that a run updates. New rows are written at the input [Offset].
type Cache struct {
	Max int
	// Page is the number of rows of a page: a power of two that divides Max. Zero means a
	// cache without pages. With pages, the input [CacheRows] gives the row of each new token,
	// and keys are numbered in the order of the input [Pages], so the tokens of a run may
	// belong to several texts. All texts of a run then share derived tables, even tables that
	// change with the length of a text.
	Page    int
	Entries []CacheEntry // in the order in which the layers were built
}

// CacheEntry is the keys or the values of one layer.
type CacheEntry struct {
	Param   string
	Updated graph.Tensor
}

// Attention emits attention of q over k and v and over the keys and values of earlier tokens
// in the cache. If a.Bias is set, the last argument is the bias of the scores.
func (b *Builder) Attention(in Text, q, k, v graph.Tensor, a ir.AttentionAttr, bias ...graph.Tensor) graph.Tensor {
	return b.AttentionOver(in, q, b.Keep(k, v), a, bias...)
}

// SinkAttention emits Attention in which each head has a sink, sinks [heads]: a score that takes
// part in the softmax and has no value.
func (b *Builder) SinkAttention(in Text, q, k, v, sinks graph.Tensor, a ir.AttentionAttr) graph.Tensor {
	kept := b.Keep(k, v)
	a.Page = kept.page
	return q.SinkAttention(kept.keys, kept.values, in.KeyStart, in.KeyEnd, sinks, a, kept.pages...)
}

// Kept holds the keys and values of a layer, with those of earlier tokens if there is a cache.
type Kept struct {
	keys, values graph.Tensor
	page         int            // of the cache, or 0
	pages        []graph.Tensor // the page table, if the cache has pages
}

// Keep writes the keys and values of a layer to the cache, if there is one.
func (b *Builder) Keep(k, v graph.Tensor) Kept {
	c := b.cache
	if c == nil || !k.Valid() || !v.Valid() {
		return Kept{keys: k, values: v}
	}
	layer := len(c.Entries) / 2
	kept := Kept{keys: b.cached(fmt.Sprintf("cache.%d.keys", layer), k), values: b.cached(fmt.Sprintf("cache.%d.values", layer), v), page: c.Page}
	if c.Page > 0 {
		kept.pages = []graph.Tensor{b.Input(Pages, tensor.I32, b.Axis(Pages))}
	}
	return kept
}

// AttentionOver emits attention of q over the keys and values of a layer, which may be another one
// than that of q.
func (b *Builder) AttentionOver(in Text, q graph.Tensor, kept Kept, a ir.AttentionAttr, bias ...graph.Tensor) graph.Tensor {
	a.Page = kept.page
	return q.Attention(kept.keys, kept.values, in.KeyStart, in.KeyEnd, a, slices.Concat(bias, kept.pages)...)
}

func (b *Builder) cached(name string, x graph.Tensor) graph.Tensor {
	size := x.Type().Last()
	table := b.G.Param(name, tensor.F32, ir.Static(b.cache.Max), size)
	var all graph.Tensor
	if b.cache.Page > 0 {
		all = table.ScatterRows(x, b.Input(CacheRows, tensor.I32, x.Type().Shape[0]))
	} else {
		all = table.UpdateRows(x, b.Input(Offset, tensor.I32, ir.Static(1)))
	}
	b.cache.Entries = append(b.cache.Entries, CacheEntry{name, all})
	return all
}
