package backend

import "context"

// yieldKey is what a context has its yield under.
type yieldKey struct{}

// WithYield is a context whose runs give way to others on their device, where that
// computes one launch after the other and can stop between them, as the CPU does: yield
// is called before each launch, may wait, and gives what is called when the launch is
// over.
func WithYield(ctx context.Context, yield func() (over func())) context.Context {
	return context.WithValue(ctx, yieldKey{}, yield)
}

// Yield is the yield of a context, nil where it has none.
func Yield(ctx context.Context) func() (over func()) {
	yield, _ := ctx.Value(yieldKey{}).(func() func())
	return yield
}
