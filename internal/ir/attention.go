package ir

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/tensor"
)

// AttentionAttr describes the heads of an attention. A positive Window limits each query to that many keys, its own
// included.
type AttentionAttr struct {
	Heads, KVHeads, HeadDim int
	Scale                   float32
	Window                  int
	// SoftCap, if positive, bounds scores s to SoftCap·tanh(s/SoftCap), before the bias (Gemma Team 2024, arXiv
	// 2408.00118).
	SoftCap float32
	// Bias is the kind of bias, given as the last input, that is added to the scores.
	Bias AttentionBias
	// Page, if positive, is the number of rows of a page of the KV cache, a power of two. The last input is then the
	// page table, pages i32 [v]: key j, as lo and hi count, is row pages[j/Page]·Page + j%Page of k and v (Kwon et al.
	// 2023, arXiv 2309.06180).
	Page int
}

// AttentionBias is the kind of bias that is added to attention scores.
type AttentionBias uint8

const (
	// NoBias selects attention without a bias input.
	NoBias AttentionBias = iota
	// ScoreBias is a bias f32 [heads,n,m] with an element per score; axes of size one are broadcast.
	ScoreBias
	// RelativeBias is a bias f32 [heads,2r+1], or [1,2r+1] for all heads. The score of query i and key j, which are
	// rows of one sequence, gets column r + min(max(j-i, -r), r). It is the relative position bias of T5 and MPNet
	// without a matrix of scores.
	RelativeBias
)

// String returns the attributes that are set, as the text of a program shows them.
func (a AttentionAttr) String() string {
	s := fmt.Sprintf("Heads:%d KVHeads:%d HeadDim:%d Scale:%v Window:%d", a.Heads, a.KVHeads, a.HeadDim, a.Scale, a.Window)
	if a.SoftCap > 0 {
		s += fmt.Sprintf(" SoftCap:%v", a.SoftCap)
	}
	if a.Bias != NoBias {
		s += " " + [...]string{ScoreBias: "ScoreBias", RelativeBias: "RelativeBias"}[a.Bias]
	}
	if a.Page > 0 {
		s += fmt.Sprintf(" Page:%d", a.Page)
	}
	return s
}

const attentionDoc = "softmax(scale·q kᵀ) v per head, q [n,heads·d], k and v [m,kvHeads·d]; query i sees the keys [max(lo[i], hi[i]-window), hi[i]): " +
	"causal masks, padding, packed documents, sliding windows and key-value caches in one form; scores may be capped, and a bias added to them, which has no gradient; " +
	"keys and values may lie in pages, which have none at all; " +
	"a query that sees none gives zeros; second output: log-sum-exp [n,heads]"

var _ = define(Attention, OpDef{Name: "Attention", Doc: attentionDoc,
	Infer: func(attr any, in []Type) ([]Type, error) {
		if err := checkAttention(attr.(AttentionAttr), in, 5, in); err != nil {
			return nil, err
		}
		return []Type{in[0], f32(Shape{in[0].Shape[0], Static(attr.(AttentionAttr).Heads)})}, nil
	},
	Decompose: func(g *Graph, attr any, in []Value) []Value {
		a := attr.(AttentionAttr)
		if a.Page > 0 {
			k, v := g.unpaged(in[1], in[5], a.Page), g.unpaged(in[2], in[5], a.Page)
			a.Page = 0
			o, lse := g.Attention(in[0], k, v, in[3], in[4], a)
			return []Value{o, lse}
		}
		q, k, v := g.splitHeads(in[0], a.Heads, a.Heads), g.splitHeads(in[1], a.KVHeads, a.Heads), g.splitHeads(in[2], a.KVHeads, a.Heads)
		s, _ := g.scores(a, q, k, in, 5)
		n, m := g.Type(in[0]).Shape[0], g.Type(in[1]).Shape[0]
		var p, lse Value
		if g.seesAll(in[3], in[4], m, a) {
			p, lse = g.softmaxOfAll(s)
		} else {
			p, lse = g.softmaxOfSeen(s, g.seen(in[3], in[4], m, a))
		}
		lse = g.Transpose(g.Reshape(lse, Shape{Static(a.Heads), n}), 1, 0)
		return []Value{g.joinHeads(g.MatMul(p, v, false, false), a.Heads), lse}
	},
	Gradient: func(b *Backward) {
		g, a := b.G, b.Attr.(AttentionAttr)
		if b.Dy(1) != 0 {
			g.Fail(fmt.Errorf("no gradient flows from the log-sum-exp of Attention"))
		}
		if b.Dy(0) == 0 {
			return
		}
		if a.Page > 0 {
			g.Fail(fmt.Errorf("Attention has no gradient where keys lie in pages"))
			return
		}
		in := []Value{b.Dy(0), b.In(0), b.In(1), b.In(2), b.Out(0), b.Out(1), b.In(3), b.In(4)}
		if a.Bias != NoBias {
			if b.Needs(5) {
				g.Fail(fmt.Errorf("Attention has no gradient for its bias"))
				return
			}
			in = append(in, b.In(5))
		}
		d := g.Apply(AttentionGrad, a, in...)
		for i := range 3 {
			if b.Needs(i) {
				b.Acc(i, g.Out(d, i))
			}
		}
	},
	Flops: func(attr any, in, _ []Type, dims []int) int {
		a, keys := attr.(AttentionAttr), in[1].Shape[0]
		if a.Page > 0 {
			keys = pagedRows(in[5], a.Page)
		}
		return AttentionFlops(Attention, a, a.guess(in[0].Shape[0], keys, dims))
	},
	Reads: func(attr any, in, outs []Type, dims []int) int {
		n := bytesOf(in, dims)
		if page := attr.(AttentionAttr).Page; page > 0 { // only rows of the table's pages are read
			for _, t := range in[1:3] {
				n -= t.Bytes(dims)
				t.Shape = Shape{pagedRows(in[5], page), t.Shape[1]}
				n += t.Bytes(dims)
			}
		}
		return n
	},
})

var _ = define(AttentionGrad, OpDef{Name: "AttentionGrad", Doc: "the gradients of Attention for q, k and v, from do, q, k, v, o, lse, lo, hi and a bias where there is one",
	Infer: func(attr any, in []Type) ([]Type, error) {
		a := attr.(AttentionAttr)
		if len(in) < 8 {
			return nil, arity(8, in)
		}
		if a.Page != 0 {
			return nil, fmt.Errorf("keys lie in pages of %d rows, and have no gradient there", a.Page)
		}
		if err := checkAttention(a, in, 8, append([]Type{in[1], in[2], in[3], in[6], in[7]}, in[8:]...)); err != nil {
			return nil, err
		}
		if !in[0].Equal(in[1]) || !in[4].Equal(in[1]) || !in[5].Equal(f32(Shape{in[1].Shape[0], Static(a.Heads)})) {
			return nil, fmt.Errorf("do, o and lse do not fit q")
		}
		return in[1:4], nil
	},
	// s denotes the scores in the softmax, c the capped scores without their bias: p = exp(s − lse), dv = pᵀ do, ds =
	// p·(do vᵀ − Σ do·o)·(1 − (c/cap)²), dq = scale·ds k, dk = scale·dsᵀ q (Dao et al. 2022, arXiv 2205.14135, appendix
	// B).
	Decompose: func(g *Graph, attr any, in []Value) []Value {
		a := attr.(AttentionAttr)
		do, q, o := g.splitHeads(in[0], a.Heads, a.Heads), g.splitHeads(in[1], a.Heads, a.Heads), g.splitHeads(in[4], a.Heads, a.Heads)
		k, v := g.splitHeads(in[2], a.KVHeads, a.Heads), g.splitHeads(in[3], a.KVHeads, a.Heads)
		n := g.Type(in[1]).Shape[0]
		s, slope := g.scores(a, q, k, in, 8)
		seen, zero := g.seen(in[6], in[7], g.Type(in[2]).Shape[0], a), g.Const(0, g.Type(s))
		lse := g.Reshape(g.Transpose(in[5], 1, 0), Shape{Static(a.Heads), n, Static(1)})
		p := g.Where(seen, g.Unary(Exp, g.Where(seen, g.Sub(s, lse), zero)), zero)
		dv := g.MatMul(p, do, true, false)
		ds := g.Mul(p, g.Sub(g.MatMul(do, v, false, true), g.keepReduce(ReduceSum, g.Mul(do, o))))
		if slope != 0 {
			ds = g.Mul(ds, slope)
		}
		dq := g.Gemm([]Product{{ds, k, false, false, a.Scale}}, 0, 0)
		dk := g.Gemm([]Product{{ds, q, true, false, a.Scale}}, 0, 0)
		return []Value{g.joinHeads(dq, a.Heads), g.joinHeads(dk, a.KVHeads), g.joinHeads(dv, a.KVHeads)}
	},
	Flops: func(attr any, in, _ []Type, dims []int) int {
		a := attr.(AttentionAttr)
		return AttentionFlops(AttentionGrad, a, a.guess(in[1].Shape[0], in[2].Shape[0], dims))
	},
})

// AttentionFlops returns the number of floating-point operations of Attention or AttentionGrad for a number of visible
// pairs of query and key. The forward pass computes two products per head; the backward pass computes five, because it
// recomputes the scores.
func AttentionFlops(op Op, a AttentionAttr, pairs int) int {
	products := 2
	if op == AttentionGrad {
		products = 5
	}
	return 2 * products * a.Heads * a.HeadDim * pairs
}

// Pairs counts the visible pairs of query and key if query i sees keys [lo[i], hi[i]).
func (a AttentionAttr) Pairs(lo, hi []int32) int {
	n := 0
	for i, end := range hi {
		begin := lo[i]
		if a.Window > 0 {
			begin = max(begin, end-int32(a.Window))
		}
		n += int(max(0, end-begin))
	}
	return n
}

// guess estimates the number of visible pairs if the intervals are unknown. It assumes that the queries are the last
// tokens of one sequence of all keys.
func (a AttentionAttr) guess(q, k Dim, dims []int) int {
	queries, keys := q.Resolve(dims), k.Resolve(dims)
	n := 0
	for i := range queries {
		seen := max(0, keys-i)
		if a.Window > 0 {
			seen = min(seen, a.Window)
		}
		n += seen
	}
	return n
}

// checkAttention checks types and the number of inputs. all must have before inputs, plus one if there is a bias or a
// page table; in lists q, k, v, lo, hi and the bias or the pages.
func checkAttention(a AttentionAttr, all []Type, before int, in []Type) error {
	if a.Bias != NoBias && a.Page != 0 {
		return fmt.Errorf("a bias for keys that lie in pages")
	}
	if want := before + boolIndex(a.Bias != NoBias || a.Page != 0); len(all) != want {
		return arity(want, all)
	}
	q, k, v, lo, hi := in[0], in[1], in[2], in[3], in[4]
	switch {
	case !(a.SoftCap >= 0) || a.Bias > RelativeBias:
		return fmt.Errorf("soft cap %v, bias %d", a.SoftCap, a.Bias)
	case a.Heads < 1 || a.KVHeads < 1 || a.Heads%a.KVHeads != 0 || a.HeadDim < 1 || a.Window < 0:
		return fmt.Errorf("%d heads, %d key-value heads, head size %d, window %d", a.Heads, a.KVHeads, a.HeadDim, a.Window)
	case q.Rank() != 2 || !q.Equal(f32(Shape{q.Shape[0], Static(a.Heads * a.HeadDim)})):
		return fmt.Errorf("q %v, expected f32 [n,%d]", q, a.Heads*a.HeadDim)
	case k.Rank() != 2 || !k.Equal(f32(Shape{k.Shape[0], Static(a.KVHeads * a.HeadDim)})) || !k.Equal(v):
		return fmt.Errorf("k %v and v %v, expected f32 [m,%d]", k, v, a.KVHeads*a.HeadDim)
	case !lo.Equal(Type{tensor.I32, q.Shape[:1]}) || !hi.Equal(lo):
		return fmt.Errorf("lo %v and hi %v, expected i32 [n]", lo, hi)
	}
	if err := checkPages(a, in); err != nil {
		return err
	}
	return checkBias(a, in)
}

func checkPages(a AttentionAttr, in []Type) error {
	switch {
	case a.Page == 0:
		return nil
	case a.Page < 0 || a.Page&(a.Page-1) != 0:
		return fmt.Errorf("pages of %d rows, expected a power of two", a.Page)
	case in[1].Shape[0].N%a.Page != 0:
		return fmt.Errorf("k %v is no whole number of pages of %d rows", in[1], a.Page)
	case in[5].Rank() != 1 || in[5].DType != tensor.I32:
		return fmt.Errorf("pages %v, expected i32 [v]", in[5])
	}
	return nil
}

func checkBias(a AttentionAttr, in []Type) error {
	if a.Bias == NoBias {
		return nil
	}
	n, m, bias := in[0].Shape[0], in[1].Shape[0], in[5]
	full := Shape{Static(a.Heads), n, m}
	fits := bias.DType == tensor.F32
	if a.Bias == RelativeBias {
		fits = fits && bias.Rank() == 2 && bias.Shape[1].Var == 0 && bias.Shape[1].N%2 == 1
		if fits && n != m {
			return fmt.Errorf("a relative bias for %v queries and %v keys, expected as many", n, m)
		}
		full = full[:1]
	}
	for i := 0; i < len(full) && fits; i++ {
		fits = bias.Rank() > i && (bias.Shape[i] == full[i] || bias.Shape[i] == Static(1))
	}
	if !fits || a.Bias == ScoreBias && bias.Rank() != 3 {
		return fmt.Errorf("bias %v of %v heads, %v queries and %v keys", bias, a.Heads, n, m)
	}
	return nil
}

// scores computes the scores of heads q and k as the softmax reads them, [heads,n,m]; the bias is input number bias.
// slope is the derivative of the soft cap, or zero without one.
func (g *Graph) scores(a AttentionAttr, q, k Value, in []Value, bias int) (s, slope Value) {
	s = g.Gemm([]Product{{q, k, false, true, a.Scale}}, 0, 0)
	if a.SoftCap > 0 {
		t := g.Unary(Tanh, g.Scale(s, 1/float64(a.SoftCap)))
		s, slope = g.Scale(t, float64(a.SoftCap)), g.AddScalar(g.Scale(g.Mul(t, t), -1), 1)
	}
	switch a.Bias {
	case ScoreBias:
		s = g.Add(s, in[bias])
	case RelativeBias:
		s = g.Add(s, g.relative(in[bias], g.Type(q).Shape[1]))
	}
	return s, slope
}

// softmaxOfAll returns the softmax of scores s [heads,n,m] and their log-sum-exp [heads,n,1].
func (g *Graph) softmaxOfAll(s Value) (p, lse Value) {
	m := g.keepReduce(ReduceMax, s)
	return g.Softmax(s), g.Add(m, g.Unary(Log, g.keepReduce(ReduceSum, g.Unary(Exp, g.Sub(s, m)))))
}

// softmaxOfSeen is softmaxOfAll over the keys that are seen, bool [n,m]. A query that sees none has zeros and -Inf.
func (g *Graph) softmaxOfSeen(s, seen Value) (p, lse Value) {
	t := g.Type(s)
	s = g.Where(seen, s, g.Const(-1e30, t))
	m := g.keepReduce(ReduceMax, s)
	e := g.Where(seen, g.Unary(Exp, g.Sub(s, m)), g.Const(0, t))
	sum := g.keepReduce(ReduceSum, e)
	some := g.Compare(Greater, sum, g.Const(0, g.Type(sum)))
	p = g.Div(e, g.Where(some, sum, g.Const(1, g.Type(sum))))
	return p, g.Where(some, g.Add(m, g.Unary(Log, sum)), g.Const(math.Inf(-1), g.Type(sum)))
}

// seesAll reports whether lo and hi are constants by which every query sees all of m keys.
func (g *Graph) seesAll(lo, hi Value, m Dim, a AttentionAttr) bool {
	is := func(v Value, x float64) bool {
		c, ok := g.Node(v).Attr.(ConstAttr)
		return ok && c.Value == x
	}
	return m.Var == 0 && m.N > 0 && a.Window == 0 && is(lo, 0) && is(hi, float64(m.N))
}

// relative expands a bias [heads,2r+1] by relative position to [heads,n,n], for n queries and keys.
func (g *Graph) relative(bias Value, n Dim) Value {
	if bias == 0 {
		return 0
	}
	r, each := float64(g.Type(bias).Last().N/2), Shape{n, n}
	i32 := func(x float64) Value { return g.Const(x, Type{tensor.I32, Shape{}}) }
	apart := g.Sub(g.Iota(1, each), g.Iota(0, each))
	column := g.Add(g.Binary(Min, g.Binary(Max, apart, i32(-r)), i32(r)), i32(r))
	return g.Transpose(g.GatherRows(g.Transpose(bias, 1, 0), column), 2, 0, 1)
}

// splitHeads reshapes x [n,from·d] to [to,n,d]. If to is a multiple of from, each head is repeated.
func (g *Graph) splitHeads(x Value, from, to int) Value {
	if x == 0 {
		return 0
	}
	s := g.Type(x).Shape
	n, d := s[0], Static(s[1].N/from)
	x = g.Transpose(g.Reshape(x, Shape{n, Static(from), d}), 1, 0, 2)
	if from == to {
		return x
	}
	x = g.Broadcast(g.Reshape(x, Shape{Static(from), Static(1), n, d}), Shape{Static(from), Static(to / from), n, d})
	return g.Reshape(x, Shape{Static(to), n, d})
}

// joinHeads reshapes x [heads,n,d] to [n,to·d] and sums the repeated heads.
func (g *Graph) joinHeads(x Value, to int) Value {
	if x == 0 {
		return 0
	}
	s := g.Type(x).Shape
	if s[0].N != to {
		x = g.Reduce(ReduceSum, g.Reshape(x, Shape{Static(to), Static(s[0].N / to), s[1], s[2]}), 1)
	}
	return g.Reshape(g.Transpose(x, 1, 0, 2), Shape{s[1], Static(to * s[2].N)})
}

// seen computes the mask of visible keys, bool [n,m].
func (g *Graph) seen(lo, hi Value, m Dim, a AttentionAttr) Value {
	n := g.Type(lo).Shape[0]
	col := Shape{n, Static(1)}
	lo, hi = g.Reshape(lo, col), g.Reshape(hi, col)
	if a.Window > 0 {
		lo = g.Binary(Max, lo, g.AddScalar(hi, -float64(a.Window)))
	}
	j := g.Iota(1, Shape{n, m})
	never := g.Compare(NotEqual, j, j)
	return g.Where(g.Compare(GreaterEqual, j, lo), g.Compare(Less, j, hi), never)
}

// unpaged gathers the pages i32 [v] of table [m,d], each of page rows, as [v·page,d].
func (g *Graph) unpaged(table, pages Value, page int) Value {
	m, d := g.Type(table).Shape[0], g.Type(table).Shape[1]
	whole := g.Reshape(table, Shape{Dim{m.N / page, m.Var}, Static(page * d.N)})
	return g.Reshape(g.GatherRows(whole, pages), Shape{pagedRows(g.Type(pages), page), d})
}

// pagedRows returns the number of rows in the pages i32 [v].
func pagedRows(pages Type, page int) Dim {
	v := pages.Shape[0]
	return Dim{v.N * page, v.Var}
}

// Attention computes multi-head attention of q over k and v. The second value is the log-sum-exp of each query and
// head. The bias or the page table comes last, if a names one.
func (g *Graph) Attention(q, k, v, lo, hi Value, a AttentionAttr, last ...Value) (o, lse Value) {
	o = g.Apply(Attention, a, append([]Value{q, k, v, lo, hi}, last...)...)
	return o, g.Out(o, 1)
}
