package nn_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// noWeights are the weights of a model that has none.
type noWeights struct{}

func (noWeights) Has(string) bool { return false }

func (noWeights) Weight(name string) (nn.Weight, error) {
	return nn.Weight{}, fmt.Errorf("%w: %q", nn.ErrMissing, name)
}

// TestDeclaredInputs: a model says what it reads, once each.
func TestDeclaredInputs(t *testing.T) {
	g := graph.New()
	b := nn.NewBuilder(g, noWeights{}, nn.Options{Bounds: map[string]int{"pixels": 4}})
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

	y := x.Mul(table.Gather(which))
	require.NoError(t, g.Err())
	require.Equal(t, "f32[v1,2]", y.Type().String())
	require.Equal(t, []float32{1, 2, 3, 9}, b.Tables()[0].Values(9))
}

// TestPlaces counts the tokens of each text that are no padding.
func TestPlaces(t *testing.T) {
	b := nn.NewBuilder(graph.New(), noWeights{}, nn.Options{Bounds: map[string]int{nn.Tokens: 8}})
	require.Equal(t, "i32[v1]", b.Places(1).Type().String())
	in := b.Inputs()[0]
	_, ok := in.Array(arrays{nn.Positions: {0}})
	require.False(t, ok, "without tokens")
	rows, ok := in.Array(arrays{nn.Tokens: {0, 1, 7, 1, 1, 5, 6}, nn.Positions: {0, 1, 2, 0, 1, 2, 0}})
	require.True(t, ok)
	require.Equal(t, tensor.BytesOf([]int32{2, 1, 3, 1, 1, 2, 2}), rows)
}

// TestNear bounds the keys of each token on both sides, within its own text.
func TestNear(t *testing.T) {
	b := nn.NewBuilder(graph.New(), noWeights{}, nn.Options{Bounds: map[string]int{nn.Tokens: 8}})
	b.Near(b.Document(), 2)
	given := arrays{nn.KeyStart: {0, 0, 0, 0, 4, 4}, nn.End: {4, 4, 4, 4, 6, 6}}
	want := map[string][]int32{"lo within 2": {0, 0, 1, 2, 4, 4}, "end within 2": {2, 3, 4, 4, 6, 6}}
	for _, in := range b.Inputs() {
		if w, ok := want[in.Name]; ok {
			rows, ok := in.Array(given)
			require.True(t, ok)
			require.Equal(t, tensor.BytesOf(w), rows, in.Name)
			delete(want, in.Name)
			_, ok = in.Array(arrays{})
			require.False(t, ok, "without a document")
		}
	}
	require.Empty(t, want)
}

// TestDocumentWithoutCache: tokens that see later ones have no cache.
func TestDocumentWithoutCache(t *testing.T) {
	g := graph.New()
	b := nn.NewBuilder(g, noWeights{}, nn.Options{Bounds: map[string]int{nn.Tokens: 8}, Cache: &nn.Cache{Max: 8}})
	b.Document()
	require.ErrorIs(t, g.Err(), nn.ErrInput)
}

// arrays are what a run is given.
type arrays map[string][]int32

func (a arrays) Array(name string) ([]byte, bool) { x, ok := a[name]; return tensor.BytesOf(x), ok }

// TestAxisWithoutABound: what a model reads and nobody gives is named, beside what
// there is.
func TestAxisWithoutABound(t *testing.T) {
	g := graph.New()
	nn.NewBuilder(g, noWeights{}, nn.Options{Bounds: map[string]int{"tokens": 4}}).Axis("token")
	require.ErrorIs(t, g.Err(), nn.ErrInput)
	require.ErrorContains(t, g.Err(), `an axis of "token", did you mean "tokens"?, and there are bounds for tokens`)
	g = graph.New()
	require.Equal(t, 1, nn.NewBuilder(g, noWeights{}, nn.Options{OtherBounds: 2}).Axis("x").N)
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
