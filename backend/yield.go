package backend

import "context"

// YieldKey is the context key of the yield function, a func() (over func()), that [WithYield] sets. It is exported for
// custom context types.
type YieldKey struct{}

// WithYield returns a context whose runs are preempted by other work on the device. The device calls yield before
// each launch if it can pause between launches, as the CPU can, otherwise before each run. Yield may block; the
// function that it returns is called when the launch or run is over.
func WithYield(ctx context.Context, yield func() (over func())) context.Context {
	return context.WithValue(ctx, YieldKey{}, yield)
}

// Yield returns the yield function of a context, or nil.
func Yield(ctx context.Context) func() (over func()) {
	yield, _ := ctx.Value(YieldKey{}).(func() func())
	return yield
}
