package nn_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// typed is a checkpoint whose tensor called name is of another type.
type typed struct {
	weights
	name  string
	dtype tensor.DType
}

func (w typed) Weight(name string) (nn.Weight, error) {
	weight, err := w.weights.Weight(name)
	if name == w.name {
		weight.DType = w.dtype
	}
	return weight, err
}

// Experts read a weight each; what is missing, of another shape or quantised is
// named.
func TestExperts(t *testing.T) {
	e := nn.Experts{Router: "gate.weight", Gate: "%d.gate.weight", Up: "%d.up.weight", Down: "%d.down.weight", GateUp: "gate_up", Downs: "downs", Count: 2, Chosen: 1, Units: 64}
	build := func(change func(w *typed, e *nn.Experts)) (graph.Tensor, *nn.Builder, error) {
		w, e := typed{weights: weights{"moe.gate.weight": {2, 128}}}, e
		for _, i := range []string{"0", "1"} {
			w.weights["moe."+i+".gate.weight"] = []int{64, 128}
			w.weights["moe."+i+".up.weight"] = []int{64, 128}
			w.weights["moe."+i+".down.weight"] = []int{128, 64}
		}
		change(&w, &e)
		g := graph.New()
		b := nn.NewBuilder(g, w, nn.Options{})
		y := b.Sub("moe").Experts(e, g.Param("x", tensor.F32, g.Bound("tokens", 128), ir.Static(128)))
		return y, b, g.Err()
	}
	y, b, err := build(func(*typed, *nn.Experts) {})
	require.NoError(t, err)
	require.Equal(t, "f32[v1,128]", y.Type().String())
	require.Equal(t, []string{"moe.gate.weight", "moe.0.gate.weight", "moe.0.up.weight", "moe.1.gate.weight", "moe.1.up.weight", "moe.0.down.weight", "moe.1.down.weight"}, b.Used())
	require.Equal(t, []nn.Module{
		{Name: "moe.gate.weight", Kind: nn.KindParameter, In: 128, Out: 2, Count: 1, Parts: b.Used()[:1]},
		{Name: "moe.gate_up", Kind: nn.KindParameter, In: 128, Out: 128, Count: 2, Parts: b.Used()[1:5]},
		{Name: "moe.downs", Kind: nn.KindParameter, In: 64, Out: 128, Count: 2, Parts: b.Used()[5:]},
	}, b.Modules())

	stacked := func(w *typed, _ *nn.Experts) {
		w.weights["moe.gate_up"], w.weights["moe.downs"] = []int{2, 128, 128}, []int{2, 128, 64}
	}
	y, b, err = build(stacked)
	require.NoError(t, err)
	require.Equal(t, "f32[v1,128]", y.Type().String())
	require.Equal(t, []string{"moe.gate.weight", "moe.gate_up", "moe.downs"}, b.Used())
	require.Equal(t, []string{"moe.gate_up"}, b.Modules()[1].Parts)
	_, _, err = build(func(w *typed, e *nn.Experts) { stacked(w, e); w.weights["moe.downs"] = []int{2, 64, 128} })
	require.ErrorContains(t, err, `"moe.downs" is [2 64 128], expected [2 128 64]`)

	// A stack is stored transposed if the layout says so or, where that depends on its shape, if that is
	// another one. Here both shapes of gate_up are the same.
	for order, transposed := range map[nn.ExpertsOrder][]bool{nn.OutIn: {false, false}, nn.InOut: {true, true}, nn.ByShape: {false, true}} {
		_, b, err = build(func(w *typed, e *nn.Experts) {
			e.Order = order
			w.weights["moe.gate_up"], w.weights["moe.downs"] = []int{2, 128, 128}, []int{2, 64, 128}
			w.weights["moe.gate_up"+nn.TransposedSuffix], w.weights["moe.downs"+nn.TransposedSuffix] = []int{2, 128, 128}, []int{2, 128, 64}
			if order == nn.OutIn {
				stacked(w, e)
			}
		})
		require.NoError(t, err)
		for i, module := range b.Modules()[1:] {
			require.Equal(t, transposed[i], module.Transposed)
			require.Equal(t, transposed[i], b.Used()[1+i] == module.Name+nn.TransposedSuffix)
		}
	}

	_, _, err = build(func(w *typed, _ *nn.Experts) { delete(w.weights, "moe.1.down.weight") })
	require.ErrorIs(t, err, nn.ErrMissing)
	require.ErrorContains(t, err, `"moe.1.down.weight"`)
	_, _, err = build(func(w *typed, _ *nn.Experts) { w.weights["moe.1.up.weight"] = []int{128, 64} })
	require.ErrorIs(t, err, nn.ErrShape)
	require.ErrorContains(t, err, `"moe.1.up.weight" is [128 64], expected [64 128]`)
	_, _, err = build(func(w *typed, _ *nn.Experts) { w.weights["moe.gate.weight"] = []int{3, 128} })
	require.ErrorContains(t, err, `"moe.gate.weight" is [3 128], expected [2 128]`)
	_, _, err = build(func(w *typed, _ *nn.Experts) { w.name, w.dtype = "moe.0.gate.weight", tensor.NF4 })
	require.ErrorContains(t, err, `tensor "moe.0.gate.weight" of an expert is quantised to NF4; supported: F32, F16, BF16`)
	_, _, err = build(func(_ *typed, e *nn.Experts) { e.Chosen = 3 })
	require.ErrorContains(t, err, "the 3 largest of 2 elements")
}
