package train

import (
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// FlowMatching is the task of diffusion transformers: to predict the velocity from
// noise to image at a noisy sample.
type FlowMatching struct {
	Axes map[string]int // sizes of the axes of batches, at most
}

// Bounds implements Task. Batches always have the planned number of samples.
func (t FlowMatching) Bounds(int) map[string]int { return t.Axes }

// Mark implements Task: samples have their targets.
func (FlowMatching) Mark(*data.Batch) {}

// Loss implements Task.
func (FlowMatching) Loss(b *nn.Builder, out model.Outputs) graph.Tensor {
	return out.Loss(b, dit.FlowMatching)
}

// Whole implements Task.
func (FlowMatching) Whole() string { return "" }

// Smaller implements Task. The number of tokens in a batch depends on the size of its
// images.
func (FlowMatching) Smaller() string { return "pictures of fewer pixels take less" }
