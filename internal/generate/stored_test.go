package generate_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/model"
)

// cacheBytes is the memory of the keys and values that a program reads.
func cacheBytes(p *ir.Program) (n int) {
	for _, a := range p.Args {
		if strings.HasPrefix(a.Name, "cache.") && a.Written {
			n += a.Bytes(p.MaxDims())
		}
	}
	return n
}

// TestStoredCache: at precision bf16 a cache takes half of the memory, in both
// programs alike, keeps what is in it when it grows, and gives logits near those
// of f32.
func TestStoredCache(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(llama, "config.json"))
	require.NoError(t, err)
	config := filepath.Join(t.TempDir(), "config.json")
	longer := strings.Replace(string(raw), `"max_position_embeddings": 128`, `"max_position_embeddings": 700`, 1)
	require.NoError(t, os.WriteFile(config, []byte(longer), 0o644))
	m, err := model.Open(withConfig(t, llama, config))
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	open := func(p backend.Precision) *generate.Generator {
		return generator(t, testdevice.OpenOn(t, backend.CPU, backend.Options{Precision: p}), m, nil, generate.Options{PrefillChunk: 24})
	}
	exact, stored := open(backend.F32), open(backend.BF16)
	for i, p := range stored.Programs() {
		require.NotZero(t, cacheBytes(p))
		assert.Equal(t, cacheBytes(exact.Programs()[i]), 2*cacheBytes(p))
	}
	ids := tokens(m, 600)
	before := stored.Capacity()
	for _, at := range []int{24, 240, 300, len(ids)} { // of which the beginning is in the cache
		want, err := exact.Read(ctx, ids[:at])
		require.NoError(t, err)
		got, err := stored.Read(ctx, ids[:at])
		require.NoError(t, err)
		got = slices.Clone(got)
		again, err := open(backend.BF16).Read(ctx, ids[:at])
		require.NoError(t, err)
		require.Equal(t, again, got, "%d tokens at once", at)
		wrong, size := 0.0, 0.0
		for i, w := range want {
			wrong += math.Pow(float64(got[i]-w), 2)
			size += float64(w) * float64(w)
		}
		require.Less(t, math.Sqrt(wrong/size), 0.01, "%d tokens", at)
		require.Positive(t, wrong, "nothing was rounded")
	}
	require.Greater(t, stored.Capacity(), before)
}
