package train

import "github.com/lorafuse/lorafuse/internal/diffusion/dit"

// FlowMatching is the task of diffusion transformers: to predict the velocity from
// noise to image at a noisy sample.
type FlowMatching struct {
	Axes map[string]int // sizes of the axes of batches, at most
}

// Loss returns the loss of the task. Batches always have the planned number of samples.
func (t FlowMatching) Loss() Loss {
	l := LossOf(dit.FlowMatching)
	l.Bounds = func(int) map[string]int { return t.Axes }
	l.Smaller = "pictures of fewer pixels take less" // the number of tokens depends on the size of images
	return l
}
