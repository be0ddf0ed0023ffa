package model

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

func init() {
	for _, head := range []string{"Model", "ForMaskedLM", "ForSequenceClassification"} {
		Register("DebertaV2"+head, Architecture{ModelType: "deberta-v2", Read: readDebertaV2})
	}
}

// debertaV2 is DeBERTa v2 and v3 (He et al. 2021, arXiv 2006.03654 and 2111.09543). It is BERT
// with disentangled attention: scores have further terms, each of the content of one token and its
// distance to the other.
type debertaV2 struct {
	*Encoder
	debertaSettings
}

type debertaSettings struct {
	Relative bool // scores have terms of the distance
	// ContentToPosition is the term of the content of the query, PositionToContent that of the key.
	ContentToPosition, PositionToContent bool
	SharedProjections                    bool // distances are projected like tokens
	NormedDistances                      bool
	Span                                 int // half of the rows of the embedding of distances
	Buckets, Farthest                    int // of distances; without buckets, each has a row
}

var debertaHeads = regexp.MustCompile(`^(lm_predictions|mask_predictions|pooler)\.|(^|\.)position_embeddings\.`)

func readDebertaV2(c *Config, f *Fields) Family {
	m := &debertaV2{Encoder: f.encoder(c, "deberta.")}
	m.NormEps = float32(f.Float("layer_norm_eps", 1e-7))
	m.Types = f.Int("type_vocab_size", 0)
	if !f.Bool("position_biased_input", true) {
		m.Positions = 0
	}
	for key, size := range ordered(map[string]int{"embedding_size": c.HiddenSize, "pooler_hidden_size": c.HiddenSize, "attention_head_size": c.HiddenSize / max(1, m.Heads), "conv_kernel_size": 0}) {
		if n := f.Int(key, size); n != size {
			f.Unsupported(key, n, []string{fmt.Sprint(size)})
		}
	}
	m.distances(f)
	act := f.activation("pooler_hidden_act", "gelu")
	m.Head = func(c *Config) []headLayer {
		dense := c.headLinear("pooler.dense", c.HiddenSize)
		dense.Then = func(x graph.Tensor) graph.Tensor { return x.Activate(act) }
		return []headLayer{dense, c.headLinear("classifier", len(c.Classes.Names))}
	}
	m.HeadPools, m.OtherHeads, m.States = true, debertaHeads, m.states
	m.Settings = m.debertaSettings
	return m.Encoder
}

// distances reads the settings of the terms of distances.
func (m *debertaV2) distances(f *Fields) {
	const terms = "pos_att_type"
	var list []string
	if raw, s := f.values[terms], ""; json.Unmarshal(raw, &s) == nil && f.Has(terms) {
		list = strings.Split(strings.ToLower(s), "|")
	} else {
		list = f.Strings(terms)
	}
	for _, term := range list {
		switch strings.TrimSpace(term) {
		case "c2p":
			m.ContentToPosition = true
		case "p2c":
			m.PositionToContent = true
		default:
			f.Unsupported(terms, term, []string{"c2p", "p2c"})
		}
	}
	m.Relative = f.Bool("relative_attention", false) && len(list) > 0
	m.SharedProjections = f.Bool("share_att_key", false)
	for _, norm := range strings.Split(strings.ToLower(f.String("norm_rel_ebd", "none")), "|") {
		switch norm = strings.TrimSpace(norm); norm {
		case "layer_norm":
			m.NormedDistances = true
		case "none":
		default:
			f.Unsupported("norm_rel_ebd", norm, []string{"layer_norm", "none"})
		}
	}
	if m.Farthest = f.Int("max_relative_positions", -1); m.Farthest < 1 {
		m.Farthest = f.Int("max_position_embeddings", 512)
	}
	m.Span = m.Farthest
	if m.Buckets = max(0, f.Int("position_buckets", -1)); m.Buckets > 0 {
		m.Span = m.Buckets
	}
	if !m.Relative {
		return
	}
	if m.Buckets == 1 || m.Buckets > 0 && m.Farthest-1 <= m.Buckets/2 {
		f.Fail("position_buckets", m.Buckets, "2 or more, and half of it less than max_relative_positions - 1")
	}
	if m.Span > 1<<16 || m.Farthest > 1<<24 {
		f.Fail("max_relative_positions", m.Farthest, fmt.Sprintf("%d at most", 1<<16))
	}
}

// row returns the row of the embedding of distances for a query that is apart tokens after its
// key.
func (s debertaSettings) row(apart int) int {
	if mid := s.Buckets / 2; mid > 0 && max(apart, -apart) > mid {
		far := max(apart, -apart)
		// The model's own arithmetic, which is that of float32.
		log := func(x float64) float32 { return float32(math.Log(float64(float32(x)))) }
		bucket := int(math.Ceil(float64(log(float64(float32(far)/float32(mid)))/log(float64(s.Farthest-1)/float64(mid))*float32(mid-1)))) + mid
		if apart < 0 {
			bucket = -bucket
		}
		apart = bucket
	}
	return min(max(apart+s.Span, 0), 2*s.Span-1)
}

func (m *debertaV2) states(c *Config, b *nn.Builder, in nn.Text) []graph.Tensor {
	x, layers := m.embed(c, b.Sub("embeddings"), in), b.Sub("encoder")
	var p *distances
	if m.Relative {
		p = m.places(c, layers, in)
	}
	return m.layers(c, layers, "layer", x, func(b *nn.Builder, _ int, x graph.Tensor) graph.Tensor {
		attn := b.Sub("attention")
		x = m.join(attn.Sub("output"), m.attend(c, attn.Sub("self"), in, x, p), x, c.HiddenSize)
		return m.feedForward(c, b, x)
	})
}

// distances are the values of the terms of distances that all layers share.
type distances struct {
	length int          // of the longest text
	rows   graph.Tensor // the embedding of distances, [2·Span, d]
	// after and before are the rows for each token and place: that of a query at the token and a
	// key at the place, and that of a key at the token and a query at the place; i32 [n, length],
	// in a table with the rows of one token after those of another.
	after, before graph.Tensor
	at            graph.Tensor // one for the place of each token and zero for others, [n, length]
}

// places emits the values that all layers share. b is the builder of the layers.
func (m *debertaV2) places(c *Config, b *nn.Builder, in nn.Text) *distances {
	p := &distances{length: min(c.MaxPositions, b.Size(nn.Tokens))}
	p.rows = b.Frozen(b.Name("rel_embeddings.weight"), 2*m.Span, c.HiddenSize)
	if !p.rows.Valid() {
		return p
	}
	if p.rows = p.rows.Cast(tensor.F32); m.NormedDistances {
		p.rows = b.LayerNorm("LayerNorm", p.rows, m.NormEps)
	}
	n, size := in.Positions.Type().Shape[0], 2*p.length-1
	rows := b.Derived(nn.Derived{Name: fmt.Sprintf("distances.%d", p.length), Shape: []int{size}, Values: func(int) []float32 {
		values := make([]float32, size)
		for i := range values {
			values[i] = float32(m.row(i - p.length + 1))
		}
		return values
	}}).Reshape(ir.Static(size), ir.Static(1))
	g, each := b.G.IR(), ir.Shape{n, ir.Static(p.length)}
	i32 := func(x int) graph.Tensor {
		return b.G.Of(g.Const(float64(x), ir.Type{DType: tensor.I32, Shape: ir.Shape{}}))
	}
	first := b.G.Of(g.Iota(0, each)).Mul(i32(2 * m.Span))
	find := func(apart graph.Tensor) graph.Tensor {
		return rows.Gather(apart.Add(i32(p.length - 1))).Reshape(each...).Cast(tensor.I32).Add(first)
	}
	own, place := in.Positions.Reshape(n, ir.Static(1)), b.G.Of(g.Iota(1, each))
	p.after, p.before = find(own.Sub(place)), find(place.Sub(own))
	p.at = place.Compare(ir.Equal, own).Where(b.G.Const(1, each...), b.G.Const(0, each...))
	return p
}

// attend emits disentangled attention. Each head of a query is followed by its term for a key at
// each place, and each head of a key by the one-hot place of that key. Places of queries and terms of
// keys follow in the same way. The scores of plain attention are then the sums of all terms.
func (m *debertaV2) attend(c *Config, b *nn.Builder, in nn.Text, x graph.Tensor, p *distances) graph.Tensor {
	q := b.Linear("query_proj", x, c.HiddenSize, true)
	k := b.Linear("key_proj", x, c.HiddenSize, true)
	v := b.Linear("value_proj", x, c.HiddenSize, true)
	terms := 1
	for _, has := range []bool{m.ContentToPosition, m.PositionToContent} {
		if has {
			terms++
		}
	}
	a := m.heads(c)
	d := a.HeadDim
	a.Scale = float32(1 / math.Sqrt(float64(d*terms)))
	if p == nil || !q.Valid() || !k.Valid() || !v.Valid() || !p.at.Valid() {
		return b.Attention(in, q, k, v, a)
	}
	n, heads, length := q.Type().Shape[0], ir.Static(m.Heads), ir.Static(p.length)
	split := func(x graph.Tensor) graph.Tensor { return x.Reshape(x.Type().Shape[0], heads, ir.Static(d)) }
	at := b.G.Of(b.G.IR().Broadcast(p.at.Reshape(n, ir.Static(1), length).Value(), ir.Shape{n, heads, length}))
	// term returns the products of each token with the rows of all distances, at each place.
	term := func(x, rows, find graph.Tensor) graph.Tensor {
		y := split(x).Transpose(1, 0, 2).MatMulT(split(rows).Transpose(1, 0, 2)) // [heads, n, rows]
		table := y.Transpose(1, 2, 0).Reshape(ir.Dim{N: n.N * 2 * m.Span, Var: n.Var}, heads)
		return table.Gather(find).Transpose(0, 2, 1)
	}
	project := func(own, shared string) graph.Tensor {
		if m.SharedProjections {
			return b.LinearAgain(shared, p.rows, c.HiddenSize, true)
		}
		return b.Linear(own, p.rows, c.HiddenSize, true)
	}
	queries, keys := []graph.Tensor{split(q)}, []graph.Tensor{split(k)}
	if m.ContentToPosition {
		rows := project("pos_key_proj", "key_proj")
		if !rows.Valid() {
			return rows
		}
		queries, keys = append(queries, term(q, rows, p.after)), append(keys, at)
	}
	if m.PositionToContent {
		rows := project("pos_query_proj", "query_proj")
		if !rows.Valid() {
			return rows
		}
		queries, keys = append(queries, at), append(keys, term(k, rows, p.before))
	}
	a.HeadDim = d + (terms-1)*p.length
	whole := ir.Static(m.Heads * a.HeadDim)
	join := func(parts []graph.Tensor) graph.Tensor { return graph.Concat(2, parts...).Reshape(n, whole) }
	values := []graph.Tensor{split(v), b.G.Const(0, n, heads, ir.Static(a.HeadDim-d))}
	o := b.Attention(in, join(queries), join(keys), join(values), a)
	return o.Reshape(n, heads, ir.Static(a.HeadDim)).Slice(2, 0, d).Reshape(n, ir.Static(c.HiddenSize))
}
