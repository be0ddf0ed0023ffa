package nn_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// weights is a checkpoint in memory: shapes by name.
type weights map[string][]int

func (w weights) Has(name string) bool { return w[name] != nil }

func (w weights) Weight(name string) (nn.Weight, error) {
	if w[name] == nil {
		return nn.Weight{}, fmt.Errorf("%w: %q", nn.ErrMissing, name)
	}
	return nn.Weight{DType: tensor.BF16, Shape: w[name]}, nil
}

// A model names its layers; the builder finds their weights and checks shapes.
func ExampleBuilder() {
	g := graph.New()
	b := nn.NewBuilder(g, weights{"mlp.up.weight": {64, 16}, "mlp.down.weight": {16, 32}}, nn.Options{})
	mlp := b.Sub("mlp")
	x := g.Param("x", tensor.F32, g.Bound("tokens", 128), ir.Static(16))
	up := mlp.Linear("up", x, 64, false)
	fmt.Println(up.Type(), b.Used())
	mlp.Linear("down", up, 16, false)
	fmt.Println(g.Err())
	// Output:
	// f32[v1,64] [mlp.up.weight]
	// example_test.go:32: graph: wrong shape: tensor "mlp.down.weight" is [16 32], expected [16 64] from config.json
}
