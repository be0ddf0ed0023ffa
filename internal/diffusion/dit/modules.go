package dit

import (
	"fmt"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// Modules returns the layers of a transformer from its configuration, without its weights.
// Errors: errors of building the graph.
func Modules(c *model.Config) ([]nn.Module, error) {
	b := nn.NewBuilder(graph.New(), blank{}, nn.Options{OtherBounds: 2})
	c.Family.Build(c, b)
	if err := b.G.Err(); err != nil {
		return nil, fmt.Errorf("dit: %s: %w", c.Architecture, err)
	}
	return b.Modules(), nil
}

// blank is a checkpoint that contains every tensor.
type blank struct{}

func (blank) Has(string) bool { return true }

func (blank) Weight(string) (nn.Weight, error) { return nn.Weight{}, nn.ErrMissing }

// Blank implements nn.Blank.
func (blank) Blank(_ string, shape []int) nn.Weight {
	return nn.Weight{DType: tensor.BF16, Shape: shape}
}
