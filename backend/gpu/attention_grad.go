package gpu

import (
	"github.com/lorafuse/lorafuse/internal/ir"
)

// attentionGrad is a launch of the gradient: its kernels in execution order, and its offsets in the scratch memory.
type attentionGrad struct {
	*attention
	l *ir.Launch

	stats, spans, dq, sum *Kernel
	packQueries, packKeys attentionPack
	dkv                   []*Kernel // one for both of dk and dv, or one for each
	parts                 int       // of the heads of a group, which have sums of their own

	area               area
	atStats, atSpans   int
	atPartsK, atPartsV int
}

func prepareAttentionGrad(c *compiler, l *ir.Launch) (step, error) {
	g := &attentionGrad{attention: c.attention(l), l: l}
	g.divide(c)
	if err := g.take(c); err != nil {
		return nil, err
	}
	c.reserve(g.area.size)
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
	if g.parts > 1 {
		bytes := 4 * g.parts * keys * g.KVHeads * g.HeadDim
		g.atPartsK, g.atPartsV = s.take(bytes), s.take(bytes)
	}
}

func (g *attentionGrad) take(c *compiler) (err error) {
	plain := func(k **Kernel, image, name string) {
		if err == nil {
			*k, err = c.kernel(image, name, 256)
		}
	}
	plain(&g.stats, "attention_grad", "attention_stats")
	plain(&g.spans, "attention_grad", "attention_spans")
	if err != nil {
		return err
	}
	if g.packQueries, err = g.pack(c, &g.area, g.Heads, operandQ, operandDO); err != nil {
		return err
	}
	if g.packKeys, err = g.pack(c, &g.area, g.KVHeads, operandK, operandV); err != nil {
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
	n, keys, t := r.axis(g.q, 0), r.axis(g.k, 0), g.tile
	stats, spans := r.keep(g.atStats), r.keep(g.atSpans)
	at, bits := g.addresses(r), g.vec(r)

	g.stats.grid(blocks(n*g.Heads, 8), 1, 1).pointer("stats", stats).pointer("dout", at[operandDO]).pointer("o", at[operandO]).pointer("lse", r.at(g.l.In[5]))
	g.intervals(r, g.stats).int("heads", g.Heads).int("d", g.HeadDim).int("window", g.Window).int("rounded", bit(g.rounded)).int("bf16", g.bf16).int("vec", bits).pointer("trap", r.Trap).int("launch", g.launch)
	g.spans.grid(blocks(blocks(n, t.queries2), 8), 1, 1).pointer("spans", spans)
	g.intervals(r, g.spans).int("window", g.Window).int("tile", t.queries2)
	g.packQueries.fill(r, g.attention, &at, &bits)
	g.packKeys.fill(r, g.attention, &at, &bits)

	read := func(k *Kernel) *Kernel {
		return k.pointer("dout", at[operandDO]).pointer("q", at[operandQ]).pointer("k", at[operandK]).pointer("v", at[operandV]).pointer("stats", stats)
	}
	typed := func(k *Kernel, bf16 int) {
		if g.rounded {
			k.int("bf16", bf16).int("vec", bits)
		} else {
			k.int("vec", g.vectors(at[:]...))
		}
	}
	read(g.dq.grid(g.Heads*blocks(n, t.queries1), 1, 1).pointer("dq", at[operandDQ]))
	g.intervals(r, g.dq).int("heads", g.Heads).int("group", g.group()).int("d", g.HeadDim).int("window", g.Window).float("scale", g.Scale)
	typed(g.dq, g.bf16)

	dk, dv, bf16 := at[operandDK], at[operandDV], g.bf16
	if g.parts > 1 {
		at[operandDK], at[operandDV] = r.keep(g.atPartsK), r.keep(g.atPartsV)
		const both = 1<<operandDK | 1<<operandDV
		bf16 &^= both
		bits = bits&^both | both*g.vectors()
	}
	for _, kernel := range g.dkv {
		read(kernel.grid(blocks(keys, t.key2), g.KVHeads*g.parts, 1).pointer("dk", at[operandDK]).pointer("dv", at[operandDV])).pointer("spans", spans)
		kernel.int("n", n).int("keys", keys).int("heads", g.Heads).int("group", g.group()).int("d", g.HeadDim).int("parts", g.parts).float("scale", g.Scale)
		typed(kernel, bf16)
	}
	if g.parts > 1 {
		count := keys * g.KVHeads * g.HeadDim
		g.sum.grid(blocks(count, 256), 2, 1).pointer("dk", dk).pointer("dv", dv).pointer("xk", at[operandDK]).pointer("xv", at[operandDV])
		g.sum.int("parts", g.parts).long("count", count).int("bf16", g.bf16)
	}
}
