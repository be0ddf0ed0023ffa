package gpu

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/ir"
)

// These launches run the kernels of file cross_entropy.

// sumLosses selects the kernel that sums losses and detects labels outside the vocabulary.
func (c *compiler) sumLosses(vocabulary func(r *Run) int) (*Kernel, error) {
	k, err := c.kernel("cross_entropy", "sum_losses_f32", 256)
	if err != nil {
		return nil, err
	}
	c.refuse(func(r *Run, where, value int) error {
		return fmt.Errorf("label %d at %d, the vocabulary has %d", value, where, vocabulary(r))
	})
	return k, nil
}

// prepareCrossEntropy computes the loss of each row, and adds the losses unless the result has them by row.
func prepareCrossEntropy(c *compiler, l *ir.Launch) (step, error) {
	x, labels, out := l.In[0], l.In[1], l.Out[0]
	rows, err := c.kernel("cross_entropy", "cross_entropy_f32", 1024)
	if err != nil {
		return nil, err
	}
	sum, err := c.sumLosses(func(r *Run) int { return r.axis(x, 1) })
	if err != nil {
		return nil, err
	}
	byRow := out.Type.Rank() == 1
	if !byRow {
		c.reserve(4 * labels.Type.Shape.Elements(c.dims))
	}
	launch := c.launch
	return func(r *Run) {
		n, v := r.axis(x, 0), r.axis(x, 1)
		losses, total, added := r.Scratch, r.at(out), r.Scratch
		if byRow { // nothing is added, but labels are checked
			losses, total, added = r.at(out), 0, 0
		}
		rows.threads(rowThreads(v))
		rows.grid(n, 1, 1).pointer("loss", losses).pointer("x", r.at(x)).pointer("labels", r.at(labels)).int("v", v)
		sum.grid(1, 1, 1).pointer("out", total).pointer("loss", added).pointer("labels", r.at(labels)).pointer("trap", r.Trap).int("n", n).int("v", v).int("launch", launch)
	}, nil
}

func prepareCrossEntropyGrad(c *compiler, l *ir.Launch) (step, error) {
	x, labels, dloss, out := l.In[0], l.In[1], l.In[2], l.Out[0]
	rows, err := c.kernel("cross_entropy", "cross_entropy_grad_f32", 1024)
	if err != nil {
		return nil, err
	}
	check, err := c.sumLosses(func(r *Run) int { return r.axis(x, 1) })
	if err != nil {
		return nil, err
	}
	launch := c.launch
	return func(r *Run) {
		n, v := r.axis(x, 0), r.axis(x, 1)
		rows.threads(rowThreads(v))
		rows.grid(n, 1, 1).pointer("dx", r.at(out)).pointer("x", r.at(x)).pointer("labels", r.at(labels)).pointer("dloss", r.at(dloss)).int("v", v)
		check.grid(1, 1, 1).pointer("out", 0).pointer("loss", 0).pointer("labels", r.at(labels)).pointer("trap", r.Trap).int("n", n).int("v", v).int("launch", launch)
	}, nil
}
