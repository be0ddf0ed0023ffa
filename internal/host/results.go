package host

import (
	"context"
	"slices"

	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// Results gives access to the results of the last run of a program by name. It is valid until
// the program runs again or is unloaded.
type Results struct{ program *engine.Program }

// Compute runs the program of a spec with a slot and the arrays of a batch. length is the
// length of the longest text in tokens. It returns errors of Program and of
// engine.Program.Run.
func (h *Host) Compute(ctx context.Context, s *engine.Slot, spec engine.Spec, given nn.Arrays, length int) (Results, error) {
	p, err := h.Program(ctx, s, spec)
	if err != nil {
		return Results{}, err
	}
	return Results{p}, p.Run(ctx, s, given, length)
}

// Get waits for the run and returns a result. Errors: engine.ErrResult for a name that the
// program does not have, and errors of the run.
func (r Results) Get(ctx context.Context, name string) ([]float32, error) {
	return r.Append(ctx, nil, name)
}

// Append waits for the run and appends a result to dst.
func (r Results) Append(ctx context.Context, dst []float32, name string) ([]float32, error) {
	n := r.program.Len(name)
	dst = slices.Grow(dst, n)[:len(dst)+n]
	return dst, r.program.Read(ctx, name, dst[len(dst)-n:])
}

// Read waits for the run and copies the first len(dst) elements of a result into dst.
func (r Results) Read(ctx context.Context, name string, dst []float32) error {
	return r.program.Read(ctx, name, dst)
}
