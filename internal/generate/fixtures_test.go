package generate_test

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tokenizer"
)

const llama = "../../testdata/lm/llama/model"

var ctx = context.Background()

func open(t testing.TB, dir string) (backend.Device, *model.Model) {
	t.Helper()
	dev := testdevice.Open(t, backend.Options{})
	m, err := model.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return dev, m
}

// withConfig is a folder with the weights of dir and another config.json.
func withConfig(t testing.TB, dir, config string) string {
	t.Helper()
	to := t.TempDir()
	for name, from := range map[string]string{"model.safetensors": filepath.Join(dir, "model.safetensors"), "config.json": config} {
		raw, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(to, name), raw, 0o644))
	}
	return to
}

func generator(t testing.TB, dev backend.Device, m *model.Model, s *lora.State, o generate.Options) *generate.Generator {
	t.Helper()
	g, err := generate.New(ctx, dev, m, s, o)
	require.NoError(t, err)
	t.Cleanup(g.Close)
	return g
}

func scorer(t testing.TB, dev backend.Device, m *model.Model, s *lora.State, tokens int) *generate.Scorer {
	t.Helper()
	sc, err := generate.NewScorer(dev, m, s, tokens)
	require.NoError(t, err)
	t.Cleanup(sc.Close)
	return sc
}

func state(t testing.TB, m *model.Model, dir string) *lora.State {
	t.Helper()
	s, err := lora.LoadState(dir, m, m.Config.ModelType, m.Modules())
	require.NoError(t, err)
	return s
}

func words(t testing.TB, dir string) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.Load(dir)
	require.NoError(t, err)
	return tok
}

// tokens are n ids that look like nothing.
func tokens(m *model.Model, n int) []int32 {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = r.Int32N(int32(m.Config.VocabSize))
	}
	return ids
}

// requireClose allows a difference of 1e-5 of the largest value.
func requireClose(t testing.TB, want, got []float32, what ...any) {
	t.Helper()
	require.Len(t, got, len(want), what...)
	diff, size := 0.0, 0.0
	for i := range want {
		diff = math.Max(diff, math.Abs(float64(got[i])-float64(want[i])))
		size = math.Max(size, math.Abs(float64(want[i])))
	}
	require.LessOrEqual(t, diff/size, 1e-5, what...)
}
