package train

import "github.com/lorafuse/lorafuse/internal/data"

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
