package generate_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/model"
)

// TestNormsOncePerAdapter: DoRA's norms, which read all weights that have an
// adapter, are made once, not for every token, nor when the cache grows.
func TestNormsOncePerAdapter(t *testing.T) {
	profile := &backend.Profile{}
	dev, err := backend.Open(backend.CPU, backend.Options{Profile: profile})
	require.NoError(t, err)
	defer dev.Close()
	m, err := model.Open("../../testdata/lm/qwen2/model")
	require.NoError(t, err)
	defer m.Close()
	s := state(t, m, "../../testdata/peft/dora-biases/adapter")
	targets := 0
	for _, x := range s.Placement.Targets {
		if x.Method() == "DoRA" {
			targets++
		}
	}
	require.Positive(t, targets)
	roots := func() (n int) {
		for _, r := range profile.Rows() {
			if r.Op == ir.Unary.String() && r.Shapes != "f32[] → f32[]" {
				n += r.Calls
			}
		}
		return n
	}
	g := generator(t, dev, m, s, generate.Options{PrefillChunk: 8})
	_, err = g.Generate(ctx, tokens(m, 20), generate.GenerateOptions{MaxNewTokens: 10, IgnoreEOS: true}, nil)
	require.NoError(t, err)
	require.Equal(t, targets, roots())

	sc := scorer(t, dev, m, s, 64)
	for range 3 {
		_, err = sc.Logits(ctx, [][]int32{tokens(m, 9)})
		require.NoError(t, err)
		_, err = sc.Hidden(ctx, [][]int32{tokens(m, 9)})
		require.NoError(t, err)
	}
	require.Equal(t, 2*targets, roots(), "another user of the adapter")

	// Another adapter of the same shape runs by the programs of the first, and by
	// norms of its own.
	other := state(t, m, "../../testdata/peft/dora-biases/adapter")
	for _, values := range other.Values {
		for i := range values {
			values[i] *= 2
		}
	}
	require.NoError(t, g.SetAdapter(ctx, other))
	got, err := g.Read(ctx, tokens(m, 9))
	require.NoError(t, err)
	require.Equal(t, 3*targets, roots())
	fresh, err := generator(t, dev, m, other, generate.Options{PrefillChunk: 8}).Read(ctx, tokens(m, 9))
	require.NoError(t, err)
	require.Equal(t, fresh, got)
}
