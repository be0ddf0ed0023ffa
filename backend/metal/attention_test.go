//go:build cgo && (darwin || (metal && metalfake))

package metal_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/metal"
	"github.com/lorafuse/lorafuse/dev/gputest"
)

var precisions = []backend.Precision{backend.F32, backend.BF16}

func openedFor(t *testing.T, p backend.Precision) backend.Device {
	t.Helper()
	need(t)
	dev, err := metal.Open(backend.Options{Precision: p})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return dev
}

// TestAttention compares with the definition in float64, in both precisions.
func TestAttention(t *testing.T) {
	limits := map[backend.Precision]float64{backend.F32: 3e-6, backend.BF16: 0.03}
	for _, p := range precisions {
		dev := openedFor(t, p)
		for _, c := range gputest.Table() {
			t.Run(fmt.Sprintf("%v/%v", p, c), func(t *testing.T) { c.RequireClose(t, dev, limits[p]) })
		}
	}
}

// TestAttentionStored is the same with operands in bf16, in tiles and each query for itself.
func TestAttentionStored(t *testing.T) {
	dev := openedFor(t, backend.BF16)
	for _, c := range gputest.Table() {
		for _, c := range []*gputest.Attention{c.Narrowed(), c.Decoded().Narrowed()} {
			t.Run(c.String(), func(t *testing.T) { c.RequireClose(t, dev, 0.03) })
		}
	}
}

// TestAttentionDecode is the same of a few queries, each of which has threadgroups of
// its own, also where they read long caches in chunks. Precision bf16 rounds nothing then.
func TestAttentionDecode(t *testing.T) {
	for _, p := range precisions {
		dev := openedFor(t, p)
		list := gputest.Chunks()
		for _, c := range gputest.Table() {
			list = append(list, c.Decoded())
		}
		for _, c := range list {
			t.Run(fmt.Sprintf("%v/%v", p, c), func(t *testing.T) { c.RequireClose(t, dev, 3e-6) })
		}
	}
}

// TestAttentionAlone: what a query gets does not depend on the others.
func TestAttentionAlone(t *testing.T) {
	see := gputest.Documents(30)
	all := gputest.NewAttention(100, 100, 2, 1, 32, 0, see)
	some := gputest.NewAttention(100, 100, 2, 1, 32, 0, func(i int) (int, int) {
		if i%3 != 0 {
			return 0, 0
		}
		return see(i)
	})
	for _, p := range precisions {
		dev := openedFor(t, p)
		a, b := all.Eval(t, dev), some.Eval(t, dev)
		for i := 0; i < 100; i += 3 {
			for _, j := range []int{0, 2} {
				require.Equal(t, a[j][i*64:(i+1)*64], b[j][i*64:(i+1)*64], "%v %s of query %d", p, gputest.Outs[j], i)
			}
		}
	}
}

// TestAttentionRefuses intervals that leave the keys, by blocks of queries and one by one,
// and the device lives on.
func TestAttentionRefuses(t *testing.T) {
	dev := openedFor(t, backend.F32)
	for _, n := range []int{5, 40} {
		c := gputest.NewAttention(n, n-1, 2, 1, 8, 0, gputest.Causal(0))
		_, err := c.Try(dev)
		require.ErrorContains(t, err, fmt.Sprintf("Attention: query %d has an interval outside of the %d keys", n-1, n-1))
		require.NotErrorIs(t, err, backend.ErrLost)
		c.Hi[n-1], c.Lo[3] = int32(n-1), -1
		_, err = c.Try(dev)
		require.ErrorContains(t, err, "query 3 has an interval outside")
		c.Lo[3] = 0
		c.Eval(t, dev)
	}
}

// TestPages: rows of a KV cache in pages, together and alone.
func TestPages(t *testing.T) {
	gputest.Pages(t, openedFor(t, backend.F32), false)
	gputest.Pages(t, openedFor(t, backend.BF16), true)
}
