//go:build cuda && linux

package cuda_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda"
	"github.com/lorafuse/lorafuse/dev/gputest"
)

// TestAttention compares with the definition in float64, in both precisions.
func TestAttention(t *testing.T) {
	limits := map[backend.Precision]float64{backend.F32: 3e-6, backend.BF16: 0.03}
	for _, precision := range []backend.Precision{backend.F32, backend.BF16} {
		dev := opened(t, backend.Options{Precision: precision})
		for _, c := range gputest.Table() {
			t.Run(fmt.Sprintf("%v/%v", precision, c), func(t *testing.T) {
				cuda.DecodeQueries(t, 0)
				c.RequireClose(t, dev, limits[precision])
			})
		}
	}
}

// TestAttentionStored is the same with operands in bf16, in blocks and each query for itself.
func TestAttentionStored(t *testing.T) {
	dev := opened(t, backend.Options{Precision: backend.BF16})
	for _, c := range gputest.Table() {
		for few, c := range map[int]*gputest.Attention{0: c.Narrowed(), 32: c.Decoded().Narrowed()} {
			t.Run(fmt.Sprintf("%d/%v", few, c), func(t *testing.T) {
				cuda.DecodeQueries(t, few)
				c.RequireClose(t, dev, 0.03)
			})
		}
	}
}

// TestAttentionDecode is the same of a few queries, each of which has blocks of its
// own. Precision bf16 rounds nothing then.
func TestAttentionDecode(t *testing.T) {
	for _, precision := range []backend.Precision{backend.F32, backend.BF16} {
		dev := opened(t, backend.Options{Precision: precision})
		for _, c := range gputest.Table() {
			c = c.Decoded()
			t.Run(fmt.Sprintf("%v/%v", precision, c), func(t *testing.T) { c.RequireClose(t, dev, 3e-6) })
		}
	}
}

// TestAttentionChunks: long caches of few queries are read in chunks, by as many
// blocks as it takes.
func TestAttentionChunks(t *testing.T) {
	dev := opened(t, backend.Options{})
	for _, c := range gputest.Chunks() {
		t.Run(c.String(), func(t *testing.T) {
			c.RequireClose(t, dev, 3e-6)
		})
	}
}

// TestAttentionAlone: what a query gets does not depend on the others, and of
// a decoding query not even on where its keys lie.
func TestAttentionAlone(t *testing.T) {
	for _, precision := range []backend.Precision{backend.F32, backend.BF16} {
		dev := opened(t, backend.Options{Precision: precision})
		cuda.DecodeQueries(t, 0)
		all := gputest.NewAttention(100, 100, 2, 1, 32, 0, gputest.Documents(30))
		some := gputest.NewAttention(100, 100, 2, 1, 32, 0, func(i int) (int, int) {
			if i%3 != 0 {
				return 0, 0
			}
			return gputest.Documents(30)(i)
		})
		a, b := all.Eval(t, dev), some.Eval(t, dev)
		for i := 0; i < 100; i += 3 {
			for _, j := range []int{0, 2} {
				require.Equal(t, a[j][i*64:(i+1)*64], b[j][i*64:(i+1)*64], "%v %s of query %d", precision, gputest.Outs[j], i)
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
		c := gputest.NewAttention(n, m, group*keyHeads, keyHeads, dim, window, func(int) (int, int) {
			lo := rapid.IntRange(0, m).Draw(r, "lo")
			return lo, rapid.IntRange(0, m).Draw(r, "hi")
		})
		for i := range c.Lo { // queries without keys: without -inf that the gradient would read
			if c.Lo[i] >= c.Hi[i] {
				c.Lo[i], c.Hi[i] = 0, 0
			}
		}
		cuda.DecodeQueries(t, rapid.SampledFrom([]int{0, 32}).Draw(r, "decode"))
		want := c.Reference()
		for i, dev := range devices {
			got := c.Eval(r, dev)
			for j, name := range gputest.Outs {
				assert.LessOrEqual(r, gputest.Error(r, got[j], want[j], 1, name), []float64{1e-5, 0.05}[i], name)
			}
		}
	})
}

// TestAttentionRefuses intervals that leave the keys, and lives on.
func TestAttentionRefuses(t *testing.T) {
	dev := opened(t, backend.Options{})
	for _, few := range []int{0, 32} {
		cuda.DecodeQueries(t, few)
		c := gputest.NewAttention(5, 4, 2, 1, 8, 0, gputest.Causal(0))
		_, err := c.Try(dev)
		require.ErrorContains(t, err, "Attention: query 4 has an interval outside of the 4 keys")
		require.NotErrorIs(t, err, backend.ErrLost)
		c.Hi[4], c.Lo[3] = 4, -1
		_, err = c.Try(dev)
		require.ErrorContains(t, err, "query 3 has an interval outside")
		c.Lo[3] = 0
		c.Eval(t, dev)
	}
}

// TestAttentionRounding: the error of bfloat16 is not larger than PyTorch's. With all operands stored so, the same
// numbers are rounded as by PyTorch; sums in another order may add a hundredth.
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
		exact := gputest.NewAttention(r.N, r.N, r.Heads, r.KVHeads, r.Dim, 0, func(i int) (int, int) { return i / r.Document * r.Document, i + 1 })
		for _, c := range []*gputest.Attention{exact, exact.Narrowed()} {
			t.Run(c.String(), func(t *testing.T) {
				want, got := c.Reference(), c.Eval(t, dev)
				for i, name := range gputest.Outs {
					if limit, ok := r.Error[name]; ok {
						if c.Stored {
							limit *= 1.01
						}
						e := gputest.Error(t, got[i], want[i], 0, name)
						t.Logf("%s: %.2e, PyTorch %.2e", name, e, limit)
						assert.LessOrEqual(t, e, limit, name)
					}
				}
			})
		}
	}
}

// TestPages: rows of a KV cache in pages, together and alone.
func TestPages(t *testing.T) {
	for _, narrow := range []bool{false, true} {
		gputest.Pages(t, opened(t, backend.Options{Precision: backend.BF16}), narrow)
	}
}
