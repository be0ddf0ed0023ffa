package session_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/train/session"
)

var ctx = context.Background()

// open opens a host of a model of the test data.
func open(t testing.TB, dir string) *host.Host { return openWith(t, dir, backend.Options{}) }

func openWith(t testing.TB, dir string, o backend.Options) *host.Host {
	m, err := model.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	r := host.Open(testdevice.Open(t, o), m)
	t.Cleanup(r.Close)
	return r
}

// all trains everything that there is.
var all = session.Options{Rank: 4, Seed: 7, Attention: true, MLP: true, Unembed: true}

const llama = "../../../testdata/lm/llama/model"

func TestLossFalls(t *testing.T) {
	for _, dir := range []string{llama, qwen} {
		b := open(t, dir)
		s, err := session.NewGroup(b).New(t.Context(), all)
		require.NoError(t, err)
		data := []session.Datum{
			{Tokens: []int32{3, 5, 7, 9}, Targets: []int32{5, 7, 9, 11}, Weights: []float32{0, 1, 1, 0.5}},
			{Tokens: []int32{4, 4}, Targets: []int32{4, 8}},
		}
		var first, last float64
		for i := range 10 {
			out, err := s.ForwardBackward(ctx, data, session.Loss{Name: "cross_entropy"}, false)
			require.NoError(t, err)
			last = out.Metrics["loss:sum"]
			if i == 0 {
				first = last
			}
			a := session.DefaultAdam()
			a.LearningRate = 1e-2
			m, err := s.OptimStep(t.Context(), a)
			require.NoError(t, err)
			require.Positive(t, m["grad_norm"])
		}
		require.Less(t, last, first/2)
	}
}
