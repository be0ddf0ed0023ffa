package train

import (
	"context"

	"github.com/lorafuse/lorafuse/data"
)

// Rows are what the steps of a run are made of. What a step has is a function of its
// number, counted over all epochs, so that a resumed run goes on by asking for the next.
type Rows interface {
	// StepsPerEpoch is the number of steps of one pass.
	StepsPerEpoch() int
	// Micros is the number of micro-batches of a step.
	Micros(step int) int
	// Fill puts micro-batch micro of a step in the place of what b has.
	Fill(b *data.Batch, step, micro int) error
	// LossTokens is what the sum of the losses of a step is divided by.
	LossTokens(step int) int
	// Tokens is how much a step has of what speed is told in, which Unit names.
	Tokens(step int) int
	Unit() string
	// MaxTokens is the most tokens that a micro-batch can have.
	MaxTokens() int
	// String says how an epoch is made up.
	String() string
}

// material is what a run learns from, as far as that depends on its task.
type material interface {
	// rows are those to train on, and those to evaluate on, nil where there are none.
	rows() (train, eval Rows)
	// cut is the same in micro-batches that are cut in n parts each.
	cut(n int) (material, error)
	// task is what the rows are to teach.
	task() (Task, error)
	// bind notes what the numbers of the run depend on.
	bind(r *Run)
	// begin does what comes before the first step, or the first of a resumed run.
	begin(ctx context.Context, l *loop) error
	// after does what follows a step, once it is recorded.
	after(ctx context.Context, l *loop, step int) error
}

// use has the run learn from m.
func (r *Run) use(m material) {
	r.material = m
	r.train, r.eval = m.rows()
}
