package model_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// TestSighted: what the vision tower sees of a picture, and the states of a text with it.
func TestSighted(t *testing.T) {
	m, f, _ := texts(t, filepath.Join(ditGoldens, "qwen2_5_vl"))
	q := m.Config.Family.(model.Sighted)
	grid := intRows(t, f, "edit.image_grid_thw")[0]
	rows, columns := int(grid[1]), int(grid[2])
	var b data.Batch
	order, err := q.Tower().Arrays(&b, floats(t, f, "edit.pixel_values"), rows, columns)
	require.NoError(t, err)
	got := run(t, m, map[string]int{model.Places: len(order)}, &b, len(order)*q.Tower().Out, func(nb *nn.Builder) graph.Tensor { return q.Look(m.Config, nb) })
	features, size := make([]float32, len(got)), q.Tower().Out
	for i, place := range order {
		copy(features[place*size:(place+1)*size], got[i*size:(i+1)*size])
	}
	requireClose(t, "features", features, floats(t, f, "edit.image_features"))

	ids := intRows(t, f, "edit.input_ids")[0]
	states := func(features []float32) []float32 {
		require.NoError(t, q.Feed(&b, ids, []model.Seen{{Places: len(order), Features: features}}))
		return run(t, m, map[string]int{nn.Tokens: len(ids), model.SeenPlaces: len(order)}, &b, len(ids)*m.Config.HiddenSize, func(nb *nn.Builder) graph.Tensor {
			x, err := q.Read(m.Config, nb).Last()
			require.NoError(t, err)
			return x
		})
	}
	want := floats(t, f, "edit.hidden_states")
	requireClose(t, "states", states(floats(t, f, "edit.image_features")), want)
	// From end to end PyTorch's own states are 2.2e-5 of the largest off those of float64.
	for i, x := range states(features) {
		require.InDelta(t, want[i], x, 1e-4, "state %d", i)
	}
	require.ErrorIs(t, q.Feed(&b, ids, nil), nn.ErrInput)
	require.ErrorIs(t, q.Feed(&b, ids[:9], []model.Seen{{Places: 6, Features: features}}), nn.ErrInput)
	_, err = q.Tower().Arrays(&b, make([]float32, 3), rows, columns)
	require.ErrorIs(t, err, nn.ErrInput)
}

// run is what a graph of a model gives for a batch: so many numbers.
func run(t *testing.T, m *model.Model, bounds map[string]int, b *data.Batch, n int, build func(*nn.Builder) graph.Tensor) []float32 {
	t.Helper()
	r := host.Open(testdevice.Open(t, backend.Options{}), m)
	defer r.Close()
	slot, err := r.NewSlot(nil)
	require.NoError(t, err)
	defer slot.Free()
	spec := engine.Spec{Name: "result", Bounds: bounds, Build: func(nb *nn.Builder, p *graph.Program) { p.Result("result", build(nb)) }}
	results, err := r.Compute(context.Background(), slot, spec, b, 1)
	require.NoError(t, err)
	out, err := results.Get(context.Background(), "result")
	require.NoError(t, err)
	require.Len(t, out, n)
	return out
}
