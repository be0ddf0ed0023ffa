package gpu

import "github.com/lorafuse/lorafuse/internal/ir"

// topKChunk is the number of elements of which a block of kernel topk_row_f32 selects the largest.
const topKChunk = 4096

// prepareTopK selects from short rows by a warp, from others by a block, and from long ones by several blocks whose
// selections another launch merges.
func prepareTopK(c *compiler, l *ir.Launch) (step, error) {
	k, in, values, indices := l.Attr.(ir.TopKAttr).K, l.In[0], l.Out[0], l.Out[1]
	n := in.Type.Last().N
	rows := func(count int) int { return count / n }
	arguments := func(r *Run, k *Kernel) *Kernel {
		return k.pointer("values", r.at(values)).pointer("indices", r.at(indices))
	}
	if n <= warpRow {
		warp, err := c.kernel("topk", "topk_warp_f32", 32*rowWarps)
		return func(r *Run) {
			rows := rows(r.count(in))
			arguments(r, warp.grid(blocks(rows, rowWarps), 1, 1)).pointer("x", r.at(in)).long("rows", rows).int("n", n).int("k", k)
		}, err
	}
	row, err := c.kernel("topk", "topk_row_f32", 256)
	if err != nil {
		return nil, err
	}
	var merge *Kernel
	chunks := blocks(n, topKChunk)
	selected := chunks * min(k, topKChunk)
	if chunks > 1 {
		if merge, err = c.kernel("topk", "topk_merge_f32", 256); err != nil {
			return nil, err
		}
		c.reserve(8 * selected * rows(in.Type.Shape.Elements(c.dims)))
	}
	return func(r *Run) {
		rows := rows(r.count(in))
		arguments(r, row.grid(rows*chunks, 1, 1)).pointer("keys", r.Scratch).pointer("x", r.at(in)).int("n", n).int("k", k).int("chunks", chunks)
		if merge != nil {
			arguments(r, merge.grid(rows, 1, 1)).pointer("keys", r.Scratch).pointer("x", r.at(in)).int("n", n).int("k", k).int("m", selected)
		}
	}, nil
}
