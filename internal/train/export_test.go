package train

import (
	"context"
	"testing"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/train/config"
)

// FixProcessMemory makes plans independent of the garbage of other tests.
func FixProcessMemory(t *testing.T, bytes int64) {
	measured := processMemory
	processMemory = func() int64 { return bytes }
	t.Cleanup(func() { processMemory = measured })
}

// Alike returns an error if devices of a backend are of different kinds.
func Alike(name string, indices []int) error { return alike(name, indices) }

// NewOnDevices opens a run on devices, which may be the same.
func NewOnDevices(c *config.Config, indices ...int) (*Run, error) {
	return newOnDevices(context.Background(), c, indices, Data{}, Observer{})
}

// NewJobsOnDevices opens jobs on devices, which may be the same.
func NewJobsOnDevices(c *config.Config, indices ...int) (*Jobs, error) {
	return newJobsOnDevices(context.Background(), c, indices, func(string) Observer { return Observer{} })
}

// Assign gives jobs to ranks.
var Assign = assign

// Right returns what an evaluation counts as right in a batch.
func (e *Engine) Right(ctx context.Context, b *data.Batch) (int, error) {
	_, right, err := e.evaluate(ctx, b)
	return right, err
}
