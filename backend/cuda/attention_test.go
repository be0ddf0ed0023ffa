//go:build cuda && linux

package cuda_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// attentionCase is an attention and the intervals of its queries.
type attentionCase struct {
	n, m    int
	a       ir.AttentionAttr
	lo, hi  []int32
	forward bool // without the gradient
}

func attentionOf(n, m, heads, keyHeads, dim, window int, see func(i int) (lo, hi int)) *attentionCase {
	c := &attentionCase{n: n, m: m, a: ir.AttentionAttr{Heads: heads, KVHeads: keyHeads, HeadDim: dim, Window: window,
		Scale: float32(1 / math.Sqrt(float64(dim)))}}
	for i := range n {
		lo, hi := see(i)
		c.lo, c.hi = append(c.lo, int32(lo)), append(c.hi, int32(hi))
	}
	return c
}

// decoded is the last queries of c, of which no gradient is asked for.
func (c *attentionCase) decoded() *attentionCase {
	d, first := *c, max(0, c.n-12)
	d.n, d.lo, d.hi, d.forward = c.n-first, c.lo[first:], c.hi[first:], true
	return &d
}

func (c *attentionCase) String() string {
	return fmt.Sprintf("%d of %d, heads %d/%d of %d, window %d", c.n, c.m, c.a.Heads, c.a.KVHeads, c.a.HeadDim, c.a.Window)
}

func causal(past int) func(i int) (lo, hi int) {
	return func(i int) (lo, hi int) { return 0, past + i + 1 }
}

// documents of different lengths, one after the other, with a query now and then
// that sees nothing.
func documents(length int) func(i int) (lo, hi int) {
	return func(i int) (lo, hi int) {
		if i%11 == 5 {
			return i, i
		}
		return i / length * length, i + 1
	}
}

// number is a fixed sequence of about unit variance (splitmix64), the same as
// in scripts/make_attention_goldens.py.
func number(seed, i uint64) float32 {
	z := seed<<32 + (i+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	return float32((float64(z>>11)/(1<<53) - 0.5) * 3.5)
}

func numbers(seed uint64, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = number(seed, uint64(i))
	}
	return x
}

// inputs are q, k, v and do.
func (c *attentionCase) inputs() (q, k, v, do []float32) {
	wide, narrow := c.n*c.a.Heads*c.a.HeadDim, c.m*c.a.KVHeads*c.a.HeadDim
	return numbers(1, wide), numbers(2, narrow), numbers(3, narrow), numbers(4, wide)
}

// reference is o, lse, dq, dk and dv by the definition.
func (c *attentionCase) reference() [5][]float64 {
	q, k, v, do := c.inputs()
	a, d := c.a, c.a.HeadDim
	o, lse := make([]float64, len(q)), make([]float64, c.n*a.Heads)
	dq, dk, dv := make([]float64, len(q)), make([]float64, len(k)), make([]float64, len(k))
	for i := range c.n {
		begin, end := int(c.lo[i]), int(c.hi[i])
		if a.Window > 0 {
			begin = max(begin, end-a.Window)
		}
		for h := range a.Heads {
			at, g := (i*a.Heads+h)*d, h/(a.Heads/a.KVHeads)
			if begin >= end {
				lse[i*a.Heads+h] = math.Inf(-1)
				continue
			}
			p, most, sum := make([]float64, end-begin), math.Inf(-1), 0.0
			row := func(j int) int { return ((begin+j)*a.KVHeads + g) * d }
			for j := range p {
				for c := range d {
					p[j] += float64(q[at+c]) * float64(k[row(j)+c])
				}
				p[j] *= float64(a.Scale)
				most = max(most, p[j])
			}
			for j := range p {
				p[j] = math.Exp(p[j] - most)
				sum += p[j]
			}
			lse[i*a.Heads+h] = most + math.Log(sum)
			delta := 0.0
			for j := range p {
				p[j] /= sum
				for c := range d {
					o[at+c] += p[j] * float64(v[row(j)+c])
				}
			}
			for c := range d {
				delta += float64(do[at+c]) * o[at+c]
			}
			for j := range p {
				ds := -delta
				for c := range d {
					ds += float64(do[at+c]) * float64(v[row(j)+c])
				}
				ds *= p[j] * float64(a.Scale)
				for c := range d {
					dq[at+c] += ds * float64(k[row(j)+c])
					dk[row(j)+c] += ds * float64(q[at+c])
					dv[row(j)+c] += p[j] * float64(do[at+c])
				}
			}
		}
	}
	return [5][]float64{o, lse, dq, dk, dv}
}

// eval computes o, lse, dq, dk and dv on a device.
func (c *attentionCase) eval(t require.TestingT, dev backend.Device) [5][]float32 {
	out, err := c.try(dev)
	require.NoError(t, err)
	return out
}

func (c *attentionCase) try(dev backend.Device) (out [5][]float32, err error) {
	g := graph.New()
	wide, narrow := c.a.Heads*c.a.HeadDim, c.a.KVHeads*c.a.HeadDim
	param := func(name string, rows, cols int) graph.Tensor {
		return g.Param(name, tensor.F32, ir.Static(rows), ir.Static(cols))
	}
	q, k, v, do := param("q", c.n, wide), param("k", c.m, narrow), param("v", c.m, narrow), param("do", c.n, wide)
	lo, hi := g.Param("lo", tensor.I32, ir.Static(c.n)), g.Param("hi", tensor.I32, ir.Static(c.n))
	o, lse := g.IR().Attention(q.Value(), k.Value(), v.Value(), lo.Value(), hi.Value(), c.a)
	d := g.IR().Apply(ir.AttentionGrad, c.a, do.Value(), q.Value(), k.Value(), v.Value(), o, lse, lo.Value(), hi.Value())
	outs := []graph.Tensor{g.Of(o), g.Of(lse), g.Of(d), g.Of(g.IR().Out(d, 1)), g.Of(g.IR().Out(d, 2))}
	fq, fk, fv, fdo := c.inputs()
	in := map[string]*tensor.Tensor{"q": floats(fq, c.n, wide), "k": floats(fk, c.m, narrow), "v": floats(fv, c.m, narrow), "lo": ints(c.lo), "hi": ints(c.hi)}
	if c.forward {
		outs = outs[:2]
	} else {
		in["do"] = floats(fdo, c.n, wide)
	}
	values, err := graph.Eval(context.Background(), dev, outs, in, nil)
	if err != nil {
		return out, err
	}
	for i, v := range values {
		for b := 0; b < len(v.Data); b += 4 {
			out[i] = append(out[i], math.Float32frombits(binary.LittleEndian.Uint32(v.Data[b:])))
		}
	}
	return out, nil
}

func floats(x []float32, shape ...int) *tensor.Tensor {
	t := &tensor.Tensor{DType: tensor.F32, Shape: shape}
	for _, v := range x {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(v))
	}
	return t
}

func ints(x []int32) *tensor.Tensor {
	t := &tensor.Tensor{DType: tensor.I32, Shape: []int{len(x)}}
	for _, v := range x {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, uint32(v))
	}
	return t
}

var attentionOuts = [5]string{"o", "lse", "dq", "dk", "dv"}

// errorOf is the root mean square of the difference, relative to that of want,
// or to smallest where that is less: gradients of what sees one key are 0.
// Infinities must be where they belong.
func errorOf(t assert.TestingT, got []float32, want []float64, smallest float64, what string) float64 {
	if !assert.Len(t, got, len(want), what) {
		return math.Inf(1)
	}
	diff, squares := 0.0, 0.0
	for i, w := range want {
		if math.IsInf(w, 0) {
			assert.Equal(t, w, float64(got[i]), "%s[%d]", what, i)
			continue
		}
		diff += (float64(got[i]) - w) * (float64(got[i]) - w)
		squares += w * w
	}
	if diff == 0 {
		return 0
	}
	return math.Sqrt(diff / max(squares, smallest*smallest*float64(len(want))))
}

// The shapes are such that each kernel meets tiles that are full, cut off,
// skipped and divided between documents.
func attentionTable() []*attentionCase {
	return []*attentionCase{
		attentionOf(150, 150, 2, 1, 16, 0, causal(0)),
		attentionOf(133, 133, 3, 1, 64, 0, documents(50)),
		attentionOf(70, 100, 2, 2, 96, 0, causal(30)),
		attentionOf(65, 129, 2, 1, 128, 40, causal(64)),
		attentionOf(40, 70, 2, 1, 256, 0, documents(17)),
		attentionOf(36, 41, 2, 2, 72, 0, causal(5)),
		attentionOf(35, 50, 7, 1, 20, 0, causal(15)),
		attentionOf(34, 34, 4, 2, 33, 9, causal(0)),
		attentionOf(1, 1, 1, 1, 8, 0, causal(0)),
		attentionOf(33, 1, 2, 1, 8, 0, func(int) (int, int) { return 0, 1 }),
		attentionOf(40, 300, 2, 1, 32, 0, func(i int) (int, int) { return i * 7, i*7 + 3 }),
	}
}

// TestAttention compares with the definition in float64, in both precisions.
func TestAttention(t *testing.T) {
	limits := map[backend.Precision]float64{backend.F32: 3e-6, backend.BF16: 0.03}
	for _, precision := range []backend.Precision{backend.F32, backend.BF16} {
		dev := opened(t, backend.Options{Precision: precision})
		for _, c := range attentionTable() {
			t.Run(fmt.Sprintf("%v/%v", precision, c), func(t *testing.T) {
				cuda.DecodeQueries(t, 0)
				c.requireClose(t, dev, limits[precision])
			})
		}
	}
}

// TestAttentionDecode is the same of a few queries, each of which has blocks of its
// own. Precision bf16 rounds nothing then.
func TestAttentionDecode(t *testing.T) {
	for _, precision := range []backend.Precision{backend.F32, backend.BF16} {
		dev := opened(t, backend.Options{Precision: precision})
		for _, c := range attentionTable() {
			c = c.decoded()
			t.Run(fmt.Sprintf("%v/%v", precision, c), func(t *testing.T) { c.requireClose(t, dev, 3e-6) })
		}
	}
}

// requireClose holds a device to the reference, and to the same bytes every run.
func (c *attentionCase) requireClose(t *testing.T, dev backend.Device, limit float64) {
	t.Helper()
	want, got := c.reference(), c.eval(t, dev)
	for i, name := range attentionOuts[:c.outs()] {
		assert.LessOrEqual(t, errorOf(t, got[i], want[i], 1, name), limit, name)
	}
	require.Equal(t, bits(got), bits(c.eval(t, dev)), "the same bytes every run")
}

func (c *attentionCase) outs() int {
	if c.forward {
		return 2
	}
	return len(attentionOuts)
}

func bits(x [5][]float32) (out [][]uint32) {
	for _, values := range x {
		var b []uint32
		for _, v := range values {
			b = append(b, math.Float32bits(v))
		}
		out = append(out, b)
	}
	return out
}

// TestAttentionChunks: long caches of few queries are read in chunks, by as many
// blocks as it takes.
func TestAttentionChunks(t *testing.T) {
	dev := opened(t, backend.Options{})
	for _, c := range []*attentionCase{
		attentionOf(2, 1500, 4, 2, 64, 0, causal(1400)),
		attentionOf(3, 700, 9, 1, 16, 0, func(i int) (int, int) { return 13 * i, 400 + 100*i }),
		attentionOf(2, 900, 2, 2, 64, 0, causal(850)),
		attentionOf(1, 513, 2, 1, 128, 300, causal(512)),
		attentionOf(2, 17000, 1, 1, 8, 0, func(i int) (int, int) { return 0, 100 + 16900*i }),
		attentionOf(3, 600, 2, 1, 256, 0, func(i int) (int, int) { return 300, 300 + 150*i }),
	} {
		t.Run(c.String(), func(t *testing.T) {
			c.forward = true
			c.requireClose(t, dev, 3e-6)
		})
	}
}

// TestAttentionAlone: what a query gets does not depend on the others, and of
// a decoding query not even on where its keys lie.
func TestAttentionAlone(t *testing.T) {
	for _, precision := range []backend.Precision{backend.F32, backend.BF16} {
		dev := opened(t, backend.Options{Precision: precision})
		cuda.DecodeQueries(t, 0)
		all := attentionOf(100, 100, 2, 1, 32, 0, documents(30))
		some := attentionOf(100, 100, 2, 1, 32, 0, func(i int) (int, int) {
			if i%3 != 0 {
				return 0, 0
			}
			return documents(30)(i)
		})
		a, b := all.eval(t, dev), some.eval(t, dev)
		for i := 0; i < 100; i += 3 {
			for _, j := range []int{0, 2} {
				require.Equal(t, a[j][i*64:(i+1)*64], b[j][i*64:(i+1)*64], "%v %s of query %d", precision, attentionOuts[j], i)
			}
		}
	}
}

// TestAttentionRandom: intervals as they come, also empty and overlapping ones.
func TestAttentionRandom(t *testing.T) {
	devices := []*cuda.Device{opened(t, backend.Options{}), opened(t, backend.Options{Precision: backend.BF16})}
	rapid.Check(t, func(r *rapid.T) {
		n, m := rapid.IntRange(0, 70).Draw(r, "n"), rapid.IntRange(1, 100).Draw(r, "m")
		group, keyHeads := rapid.IntRange(1, 3).Draw(r, "group"), rapid.IntRange(1, 2).Draw(r, "key heads")
		dim := rapid.SampledFrom([]int{1, 7, 8, 24, 33, 64, 80}).Draw(r, "head size")
		window := rapid.SampledFrom([]int{0, 0, 1, 20}).Draw(r, "window")
		c := attentionOf(n, m, group*keyHeads, keyHeads, dim, window, func(int) (int, int) {
			lo := rapid.IntRange(0, m).Draw(r, "lo")
			return lo, rapid.IntRange(0, m).Draw(r, "hi")
		})
		for i := range c.lo { // queries without keys: without -inf that the gradient would read
			if c.lo[i] >= c.hi[i] {
				c.lo[i], c.hi[i] = 0, 0
			}
		}
		cuda.DecodeQueries(t, rapid.SampledFrom([]int{0, 32}).Draw(r, "decode"))
		want := c.reference()
		for i, dev := range devices {
			got := c.eval(r, dev)
			for j, name := range attentionOuts {
				assert.LessOrEqual(r, errorOf(r, got[j], want[j], 1, name), []float64{1e-5, 0.05}[i], name)
			}
		}
	})
}

// TestAttentionRefuses intervals that leave the keys, and lives on.
func TestAttentionRefuses(t *testing.T) {
	dev := opened(t, backend.Options{})
	for _, few := range []int{0, 32} {
		cuda.DecodeQueries(t, few)
		c := attentionOf(5, 4, 2, 1, 8, 0, causal(0))
		_, err := c.try(dev)
		require.ErrorContains(t, err, "Attention: query 4 has an interval outside of the 4 keys")
		require.NotErrorIs(t, err, backend.ErrLost)
		c.hi[4], c.lo[3] = 4, -1
		_, err = c.try(dev)
		require.ErrorContains(t, err, "query 3 has an interval outside")
		c.lo[3] = 0
		c.eval(t, dev)
	}
}

// TestAttentionRounding: the error of bfloat16 is not larger than PyTorch's.
func TestAttentionRounding(t *testing.T) {
	raw, err := os.ReadFile("testdata/attention_rounding.json")
	require.NoError(t, err)
	var rows []struct {
		N, Heads, KVHeads, Dim, Document int
		Error                            map[string]float64
	}
	require.NoError(t, json.Unmarshal(raw, &rows))
	dev := opened(t, backend.Options{Precision: backend.BF16})
	for _, r := range rows {
		c := attentionOf(r.N, r.N, r.Heads, r.KVHeads, r.Dim, 0, func(i int) (int, int) { return i / r.Document * r.Document, i + 1 })
		t.Run(c.String(), func(t *testing.T) {
			want, got := c.reference(), c.eval(t, dev)
			for i, name := range attentionOuts {
				if limit, ok := r.Error[name]; ok {
					e := errorOf(t, got[i], want[i], 0, name)
					t.Logf("%s: %.2e, PyTorch %.2e", name, e, limit)
					assert.LessOrEqual(t, e, limit, name)
				}
			}
		})
	}
}
