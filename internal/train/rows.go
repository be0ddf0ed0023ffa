package train

import (
	"context"

	"github.com/lorafuse/lorafuse/internal/data"
)

// Rows provides the batches of a run. The contents of a step depend only on its number,
// counted over all epochs, so a resumed run simply requests the next step.
type Rows interface {
	// StepsPerEpoch is the number of steps of one pass.
	StepsPerEpoch() int
	// Micros is the number of micro-batches of a step.
	Micros(step int) int
	// Fill replaces the contents of b by micro-batch micro of a step.
	Fill(b *data.Batch, step, micro int) error
	// LossTokens returns the divisor of the sum of a step's losses.
	LossTokens(step int) int
	// Tokens returns the size of a step for speed figures, in the unit that Unit names.
	Tokens(step int) int
	Unit() string
	// MaxTokens is the most tokens that a micro-batch can have.
	MaxTokens() int
	// String describes the composition of an epoch.
	String() string
}

// material is the task-specific training data of a run.
type material interface {
	// rows returns the rows for training and for evaluation, or nil without them.
	rows() (train, eval Rows)
	// cut is the same in micro-batches that are cut in n parts each.
	cut(n int) (material, error)
	// loss returns the loss that the rows are for.
	loss() (Loss, error)
	// bind records the properties of the data that affect results.
	bind(r *Run)
	// begin prepares the first step, also of a resumed run.
	begin(ctx context.Context, l *loop) error
	// after is called after each step, once it is recorded.
	after(ctx context.Context, l *loop, step int) error
}

// use sets the training data of the run to m.
func (r *Run) use(m material) {
	r.material = m
	r.train, r.eval = m.rows()
}
