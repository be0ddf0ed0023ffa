package backend

import "context"

// YieldKey is the key of the value that [WithYield] gives a context, a func() (over func()),
// for contexts of other kinds that have one.
type YieldKey struct{}

// WithYield is a context whose runs give way to others on their device: yield is called
// before each launch where the device can stop between them, as the CPU does, and else
// before each run. It may wait, and gives what is called when the launch or run is over.
func WithYield(ctx context.Context, yield func() (over func())) context.Context {
	return context.WithValue(ctx, YieldKey{}, yield)
}

// Yield is the yield of a context, nil where it has none.
func Yield(ctx context.Context) func() (over func()) {
	yield, _ := ctx.Value(YieldKey{}).(func() func())
	return yield
}
