package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// Parts of several results are read at once.
func TestReadParts(t *testing.T) {
	dev, m := open(t, llama+"model")
	r := engine.New(dev, m)
	defer r.Close()
	s, err := r.NewSlot(nil)
	require.NoError(t, err)
	d, err := r.Plan(s, engine.Spec{Bounds: map[string]int{nn.Tokens: 9}, Build: func(b *nn.Builder, p *graph.Program) {
		o := m.Build(b)
		p.Result("loss", o.Loss(b, model.NextToken)).Result("hidden", o.Hidden[0])
	}})
	require.NoError(t, err)
	ps, err := r.Load(t.Context(), s, nil, d)
	require.NoError(t, err)
	require.NoError(t, ps[0].Run(t.Context(), s, batch(9), 9))
	n := m.Config.HiddenSize
	all, loss := make([]float32, 9*n), make([]float32, 1)
	require.NoError(t, ps[0].Read(t.Context(), "hidden", all))
	require.NoError(t, ps[0].Read(t.Context(), "loss", loss))
	rows, last, same := make([]float32, 2*n), make([]float32, n), make([]float32, 1)
	require.NoError(t, ps[0].ReadParts(t.Context(), engine.Part{Result: "hidden", Start: 3 * n, Into: rows}, engine.Part{Result: "loss", Into: same}, engine.Part{Result: "hidden", Start: 8 * n, Into: last}))
	require.Equal(t, all[3*n:5*n], rows)
	require.Equal(t, all[8*n:], last)
	require.Equal(t, loss, same)
	require.NoError(t, ps[0].ReadParts(t.Context()), "it waits for the runs")
	require.ErrorIs(t, ps[0].ReadParts(t.Context(), engine.Part{Result: "loss", Into: same}, engine.Part{Result: "hiden", Into: last}), engine.ErrResult)
}
