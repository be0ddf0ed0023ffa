package nn_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// arrays are what a run is given.
type arrays map[string][]byte

func (a arrays) Array(name string) ([]byte, bool) { data, ok := a[name]; return data, ok }

// TestDeclaredInputs: a model says what it reads, and a run is given that by name.
func TestDeclaredInputs(t *testing.T) {
	ctx := t.Context()
	dev, err := backend.Open("cpu", backend.Options{Threads: 1})
	require.NoError(t, err)
	defer dev.Close()
	g := graph.New()
	b := nn.NewBuilder(g, made{}, nn.Options{Bounds: map[string]int{"pixels": 4}})
	n := b.Axis("pixels")
	x := b.Input("rows", tensor.F32, n, ir.Static(2))
	which := b.Input("which", tensor.I32, n)
	require.Equal(t, x, b.Input("rows", tensor.F32, n, ir.Static(2)), "asked for twice")
	b.Input("unused", tensor.F32, n)
	d := nn.Derived{Name: "scale", Shape: []int{2, 2}, Until: 8, Values: func(length int) []float32 { return []float32{1, 2, 3, float32(length)} }}
	table := b.Derived(d)
	require.Equal(t, table, b.Derived(d))
	require.Len(t, b.Tables(), 1)
	require.True(t, b.Tables()[0].Changes())
	var names []string
	for _, in := range b.Inputs() {
		names = append(names, in.Name)
	}
	require.Equal(t, []string{"rows", "which", "unused"}, names)

	e, err := g.Program().Result("y", x.Mul(table.Gather(which))).Compile(dev)
	require.NoError(t, err)
	defer e.Close()
	s := nn.NewStore(dev)
	defer s.Free()
	require.NoError(t, s.Bind(e))
	require.NoError(t, s.SetTables(ctx, b.Tables(), 9))
	given := arrays{"rows": tensor.BytesOf([]float32{1, 2, 3, 4}), "which": tensor.BytesOf([]int32{1, 0})}
	require.NoError(t, s.Feed(ctx, e, b.Inputs(), given))
	require.NoError(t, e.RunWait(ctx))
	y := make([]float32, 4)
	require.NoError(t, s.GetFloat32s(ctx, "y", y))
	require.Equal(t, []float32{3, 18, 3, 8}, y)

	for says, change := range map[string]arrays{
		`the model reads "which"`:                              {"rows": given["rows"]},
		`"which" has 3 rows where the arrays before it have 2`: {"rows": given["rows"], "which": make([]byte, 12)},
		`"rows" f32[v1,2] is given 12 bytes`:                   {"rows": make([]byte, 12), "which": given["which"]},
		`pixels = 5, expected 1 to 4`:                          {"rows": make([]byte, 40), "which": make([]byte, 20)},
	} {
		err := s.Feed(ctx, e, b.Inputs(), change)
		require.ErrorIs(t, err, nn.ErrInput)
		require.ErrorContains(t, err, says)
	}
}

// TestAxisWithoutABound: what a model reads and nobody gives is named, beside what
// there is.
func TestAxisWithoutABound(t *testing.T) {
	g := graph.New()
	nn.NewBuilder(g, made{}, nn.Options{Bounds: map[string]int{"tokens": 4}}).Axis("token")
	require.ErrorIs(t, g.Err(), nn.ErrInput)
	require.ErrorContains(t, g.Err(), `an axis of "token", did you mean "tokens"?, and there are bounds for tokens`)
	g = graph.New()
	require.Equal(t, 1, nn.NewBuilder(g, made{}, nn.Options{OtherBounds: 2}).Axis("x").N)
	require.NoError(t, g.Err())
	require.Equal(t, []int{0, 2}, g.IR().MaxDims())
}

// TestStreamsCollide: these two words have one FNV-1a number of 32 bits.
func TestStreamsCollide(t *testing.T) {
	require.Equal(t, nn.Stream("costarring"), nn.Stream("liquid"))
	a, b, c := nn.Module{Name: "costarring"}, nn.Module{Name: "model"}, nn.Module{Name: "liquid"}
	require.NoError(t, nn.CheckStreams([]nn.Module{a, b, a}))
	err := nn.CheckStreams([]nn.Module{a, b, c})
	require.ErrorIs(t, err, nn.ErrStream)
	require.ErrorContains(t, err, `modules "costarring" and "liquid"`)
}
