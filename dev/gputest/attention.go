package gputest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// Attention is one and the intervals of its queries.
type Attention struct {
	N, M    int // queries and keys
	Attr    ir.AttentionAttr
	Lo, Hi  []int32
	Forward bool // without the gradient
	Stored  bool // operands are stored as bf16, if the device can
}

// NewAttention returns a case of n queries, each of which attends to the keys [lo, hi) of m.
func NewAttention(n, m, heads, keyHeads, dim, window int, see func(i int) (lo, hi int)) *Attention {
	c := &Attention{N: n, M: m, Attr: ir.AttentionAttr{Heads: heads, KVHeads: keyHeads, HeadDim: dim, Window: window,
		Scale: float32(1 / math.Sqrt(float64(dim)))}}
	for i := range n {
		lo, hi := see(i)
		c.Lo, c.Hi = append(c.Lo, int32(lo)), append(c.Hi, int32(hi))
	}
	return c
}

// Decoded returns a case of c's last queries, without gradients.
func (c *Attention) Decoded() *Attention {
	d, first := *c, max(0, c.N-12)
	d.N, d.Lo, d.Hi, d.Forward = c.N-first, c.Lo[first:], c.Hi[first:], true
	return &d
}

// Narrowed returns the case with operands that are stored as bf16.
func (c *Attention) Narrowed() *Attention {
	d := *c
	d.Stored = true
	return &d
}

// String formats the sizes of the case.
func (c *Attention) String() string {
	stored := ""
	if c.Stored {
		stored = ", stored as bf16"
	}
	return fmt.Sprintf("%d of %d, heads %d/%d of %d, window %d%s", c.N, c.M, c.Attr.Heads, c.Attr.KVHeads, c.Attr.HeadDim, c.Attr.Window, stored)
}

// Causal returns the key ranges of queries that follow past keys.
func Causal(past int) func(i int) (lo, hi int) {
	return func(i int) (lo, hi int) { return 0, past + i + 1 }
}

// Documents of different lengths, one after the other, with a query now and then
// that sees nothing.
func Documents(length int) func(i int) (lo, hi int) {
	return func(i int) (lo, hi int) {
		if i%11 == 5 {
			return i, i
		}
		return i / length * length, i + 1
	}
}

// number returns element i of a fixed sequence of about unit variance (splitmix64), the same as in
// scripts/make_attention_goldens.py.
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

// inputs returns q, k, v and do.
func (c *Attention) inputs() (q, k, v, do []float32) {
	wide, narrow := c.N*c.Attr.Heads*c.Attr.HeadDim, c.M*c.Attr.KVHeads*c.Attr.HeadDim
	return numbers(1, wide), numbers(2, narrow), numbers(3, narrow), numbers(4, wide)
}

// Reference computes o, lse, dq, dk and dv from the definition.
func (c *Attention) Reference() [5][]float64 {
	q, k, v, do := c.inputs()
	a, d := c.Attr, c.Attr.HeadDim
	o, lse := make([]float64, len(q)), make([]float64, c.N*a.Heads)
	dq, dk, dv := make([]float64, len(q)), make([]float64, len(k)), make([]float64, len(k))
	for i := range c.N {
		begin, end := int(c.Lo[i]), int(c.Hi[i])
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

// Eval computes o, lse, dq, dk and dv on a device.
func (c *Attention) Eval(t require.TestingT, dev backend.Device) [5][]float32 {
	out, err := c.Try(dev)
	require.NoError(t, err)
	return out
}

// Try evaluates the case like Eval, but returns errors.
func (c *Attention) Try(dev backend.Device) (out [5][]float32, err error) {
	g := graph.New()
	wide, narrow := c.Attr.Heads*c.Attr.HeadDim, c.Attr.KVHeads*c.Attr.HeadDim
	param := func(name string, rows, cols int) graph.Tensor {
		return g.Param(name, tensor.F32, ir.Static(rows), ir.Static(cols))
	}
	q, k, v, do := param("q", c.N, wide), param("k", c.M, narrow), param("v", c.M, narrow), param("do", c.N, wide)
	lo, hi := g.Param("lo", tensor.I32, ir.Static(c.N)), g.Param("hi", tensor.I32, ir.Static(c.N))
	o, lse := g.IR().Attention(q.Value(), k.Value(), v.Value(), lo.Value(), hi.Value(), c.Attr)
	d := g.IR().Apply(ir.AttentionGrad, c.Attr, do.Value(), q.Value(), k.Value(), v.Value(), o, lse, lo.Value(), hi.Value())
	outs := []graph.Tensor{g.Of(o), g.Of(lse), g.Of(d), g.Of(g.IR().Out(d, 1)), g.Of(g.IR().Out(d, 2))}
	fq, fk, fv, fdo := c.inputs()
	in := map[string]*tensor.Tensor{"q": floats(fq, c.N, wide), "k": floats(fk, c.M, narrow), "v": floats(fv, c.M, narrow), "lo": ints(c.Lo), "hi": ints(c.Hi)}
	if c.Forward {
		outs = outs[:2]
	} else {
		in["do"] = floats(fdo, c.N, wide)
	}
	spec := exec.Spec{Stores: dev.Stores}
	if c.Stored {
		spec.Store, spec.StoreAll = tensor.BF16, true
	}
	for i, v := range outs {
		spec.Results = append(spec.Results, exec.Result{Name: fmt.Sprintf("out%d", i), Value: v.Value()})
	}
	e, err := exec.Compile(g.IR(), spec, dev)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	return run(dev, e, in)
}

// run computes out0, out1 and so on from inputs in f32.
func run(dev backend.Device, e *exec.Executable, in map[string]*tensor.Tensor) (out [5][]float32, err error) {
	b, err := bind(dev, e)
	defer b.free()
	if err != nil {
		return out, err
	}
	args := e.Program().Args
	for i := range args {
		a := &args[i]
		x, ok := in[a.Name]
		if !ok {
			continue
		}
		raw := x.Data
		if a.Stored() != x.DType {
			wide := make([]float32, len(raw)/4)
			raw = make([]byte, a.Bytes(nil))
			if err := errors.Join(tensor.ToFloat32(wide, x.Data, x.DType), tensor.FromFloat32(raw, wide, a.Stored())); err != nil {
				return out, err
			}
		}
		if err := b.upload(a.Name, raw); err != nil {
			return out, err
		}
	}
	if err := e.RunWait(context.Background()); err != nil {
		return out, err
	}
	for i := range out {
		name := fmt.Sprintf("out%d", i)
		j := e.Program().ArgIndex(name)
		if j < 0 {
			break
		}
		raw := make([]byte, args[j].Bytes(nil))
		if err := b.download(name, raw); err != nil {
			return out, err
		}
		out[i] = make([]float32, len(raw)/args[j].Stored().Size())
		if err := tensor.ToFloat32(out[i], raw, args[j].Stored()); err != nil {
			return out, err
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

// Outs names the results of Eval.
var Outs = [5]string{"o", "lse", "dq", "dk", "dv"}

// Error returns the root mean square of the difference relative to that of want, or to smallest if that is larger:
// gradients of queries that see one key are 0. Infinities must match.
func Error(t assert.TestingT, got []float32, want []float64, smallest float64, what string) float64 {
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

// Table returns cases whose tiles are full, partial, skipped, or split between documents, for each kernel.
func Table() []*Attention {
	return []*Attention{
		NewAttention(150, 150, 2, 1, 16, 0, Causal(0)),
		NewAttention(133, 133, 3, 1, 64, 0, Documents(50)),
		NewAttention(70, 100, 2, 2, 96, 0, Causal(30)),
		NewAttention(65, 129, 2, 1, 128, 40, Causal(64)),
		NewAttention(40, 70, 2, 1, 256, 0, Documents(17)),
		NewAttention(36, 41, 2, 2, 72, 0, Causal(5)),
		NewAttention(35, 50, 7, 1, 20, 0, Causal(15)),
		NewAttention(34, 34, 4, 2, 33, 9, Causal(0)),
		NewAttention(1, 1, 1, 1, 8, 0, Causal(0)),
		NewAttention(33, 1, 2, 1, 8, 0, func(int) (int, int) { return 0, 1 }),
		NewAttention(40, 300, 2, 1, 32, 0, func(i int) (int, int) { return i * 7, i*7 + 3 }),
	}
}

// RequireClose holds a device to the reference, and to the same bytes every run.
func (c *Attention) RequireClose(t *testing.T, dev backend.Device, limit float64) {
	t.Helper()
	want, got := c.Reference(), c.Eval(t, dev)
	for i, name := range Outs[:c.outs()] {
		assert.LessOrEqual(t, Error(t, got[i], want[i], 1, name), limit, name)
	}
	require.Equal(t, bits(got), bits(c.Eval(t, dev)), "the same bytes every run")
}

func (c *Attention) outs() int {
	if c.Forward {
		return 2
	}
	return len(Outs)
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

// Chunks returns cases with caches that are long enough to be read in chunks.
func Chunks() []*Attention {
	list := []*Attention{
		NewAttention(2, 1500, 4, 2, 64, 0, Causal(1400)),
		NewAttention(3, 700, 9, 1, 16, 0, func(i int) (int, int) { return 13 * i, 400 + 100*i }),
		NewAttention(2, 900, 2, 2, 64, 0, Causal(850)),
		NewAttention(1, 513, 2, 1, 128, 300, Causal(512)),
		NewAttention(2, 17000, 1, 1, 8, 0, func(i int) (int, int) { return 0, 100 + 16900*i }),
		NewAttention(3, 600, 2, 1, 256, 0, func(i int) (int, int) { return 300, 300 + 150*i }),
	}
	for _, c := range list {
		c.Forward = true
	}
	return list
}
