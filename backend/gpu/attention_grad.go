package gpu

import (
	"github.com/lorafuse/lorafuse/internal/ir"
)

// attentionGrad is a launch of the gradient: its kernels in execution order, and its offsets in the scratch memory.
type attentionGrad struct {
	*attention
	l *ir.Launch

	stats, spans, packKeys, packQueries, dq, sum *Kernel
	dkv                                          []*Kernel // one for both of dk and dv, or one for each
	parts                                        int       // of the heads of a group, which have sums of their own

	area                area
	atStats, atSpans    int
	atQ, atDO, atK, atV int // packed
	atPartsK, atPartsV  int
}

func prepareAttentionGrad(c *compiler, l *ir.Launch) (step, error) {
	g := &attentionGrad{attention: c.attention(l, l.In[1], l.In[2], l.In[6], l.In[7]), l: l}
	g.divide(c)
	if err := g.take(c); err != nil {
		return nil, err
	}
	return g.fill, nil
}

// divide plans the scratch memory, and splits the heads of a group into the fewest parts that keep the GPU busy. It
// uses the largest sizes, so that all runs of a program sum in the same order.
func (g *attentionGrad) divide(c *compiler) {
	queries, keys := c.axisMax(g.q), c.axisMax(g.k)
	g.parts = 1
	for g.parts < g.group() && blocks(keys, g.tile.key2)*g.KVHeads*g.parts < gradBlocks {
		for g.parts++; g.group()%g.parts != 0; g.parts++ {
		}
	}
	s := &g.area
	g.atStats, g.atSpans = s.take(16*queries*g.Heads), s.take(8*blocks(queries, g.tile.queries2))
	if g.rounded {
		g.atQ, g.atDO = s.take(g.packed(queries, g.Heads)), s.take(g.packed(queries, g.Heads))
		g.atK, g.atV = s.take(g.packed(keys, g.KVHeads)), s.take(g.packed(keys, g.KVHeads))
	}
	if g.parts > 1 {
		bytes := 4 * g.parts * keys * g.KVHeads * g.HeadDim
		g.atPartsK, g.atPartsV = s.take(bytes), s.take(bytes)
	}
	c.reserve(s.size)
}

func (g *attentionGrad) take(c *compiler) (err error) {
	plain := func(k **Kernel, image, name string) {
		if err == nil {
			*k, err = c.kernel(image, name, 256)
		}
	}
	plain(&g.stats, "attention_grad", "attention_stats_f32")
	plain(&g.spans, "attention_grad", "attention_spans")
	if g.rounded {
		plain(&g.packQueries, "attention", "attention_pack_bf16")
		plain(&g.packKeys, "attention", "attention_pack_bf16")
	}
	if err != nil {
		return err
	}
	t := g.tile
	stages := 1
	names := []string{"dkv_"}
	if g.rounded {
		stages = 2
		if t.size > 128 {
			names = []string{"dk_", "dv_"}
		}
	}
	if g.dq, err = g.kernel(c, "attention_grad", "dq_", 2*(t.queries1+stages*t.key1)*g.row()+g.scores(t.queries1, t.key1)); err != nil {
		return err
	}
	for _, name := range names {
		kept := 2 * t.key2
		if name == "dv_" {
			kept = t.key2
		}
		bytes := (kept+2*stages*t.queries2)*g.row() + 2*g.scores(t.key2, t.queries2)
		if g.rounded {
			bytes += 2 * 16 * t.queries2 // the stats of the queries of both stages
		}
		k, err := g.kernel(c, "attention_grad", name, bytes)
		if err != nil {
			return err
		}
		g.dkv = append(g.dkv, k)
	}
	if g.parts > 1 {
		plain(&g.sum, "attention_grad", "attention_sum_parts")
	}
	return err
}

func (g *attentionGrad) fill(r *Run) {
	in := func(i int) Pointer { return r.at(g.l.In[i]) }
	do, q, k, v, o, lse := in(0), in(1), in(2), in(3), in(4), in(5)
	dq, dk, dv := r.at(g.l.Out[0]), r.at(g.l.Out[1]), r.at(g.l.Out[2])
	n, keys, t := r.axis(g.q, 0), r.axis(g.k, 0), g.tile
	stats, spans := r.keep(g.atStats), r.keep(g.atSpans)

	g.stats.grid(blocks(n*g.Heads, 8), 1, 1).pointer("stats", stats).pointer("dout", do).pointer("o", o).pointer("lse", lse)
	g.intervals(r, g.stats).int("heads", g.Heads).int("d", g.HeadDim).int("window", g.Window).int("rounded", bit(g.rounded)).int("vec", g.vectors(do, o)).pointer("trap", r.Trap).int("launch", g.launch)
	g.spans.grid(blocks(blocks(n, t.queries2), 8), 1, 1).pointer("spans", spans)
	g.intervals(r, g.spans).int("window", g.Window).int("tile", t.queries2)
	vec := g.vectors(do, q, k, v, dq, dk, dv)
	if g.rounded {
		g.pack(g.packQueries, n*g.Heads, r.keep(g.atQ), q, r.keep(g.atDO), do)
		g.pack(g.packKeys, keys*g.KVHeads, r.keep(g.atK), k, r.keep(g.atV), v)
		do, q, k, v = r.keep(g.atDO), r.keep(g.atQ), r.keep(g.atK), r.keep(g.atV)
	}

	g.dq.grid(g.Heads*blocks(n, t.queries1), 1, 1).pointer("dq", dq).pointer("dout", do).pointer("q", q).pointer("k", k).pointer("v", v).pointer("stats", stats)
	g.intervals(r, g.dq).int("heads", g.Heads).int("group", g.group()).int("d", g.HeadDim).int("window", g.Window).float("scale", g.Scale).int("vec", vec)

	toK, toV := dk, dv
	if g.parts > 1 {
		toK, toV = r.keep(g.atPartsK), r.keep(g.atPartsV)
	}
	for _, kernel := range g.dkv {
		kernel.grid(blocks(keys, t.key2), g.KVHeads*g.parts, 1).pointer("dk", toK).pointer("dv", toV).pointer("dout", do).pointer("q", q).pointer("k", k).pointer("v", v)
		kernel.pointer("stats", stats).pointer("spans", spans).int("n", n).int("keys", keys).int("heads", g.Heads).int("group", g.group()).int("d", g.HeadDim)
		kernel.int("parts", g.parts).float("scale", g.Scale).int("vec", vec)
	}
	if g.parts > 1 {
		count := keys * g.KVHeads * g.HeadDim
		g.sum.grid(blocks(count, 256), 2, 1).pointer("dk", dk).pointer("dv", dv).pointer("xk", toK).pointer("xv", toV).int("parts", g.parts).long("count", count)
	}
}
