package batching

import (
	"context"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/engine"
)

// Beside is a runtime of the engine's model, with its weights, to train with while the
// engine serves: one goroutine uses it, with contexts of GiveWay. It is closed before the
// engine's device is.
func (e *Engine) Beside() *engine.Runtime { return e.machine.runtime.Beside() }

// GiveWay is a context for runs of what Beside has given. While there are requests these
// runs stop at their next launch, and go on in slices of time behind the steps of the
// engine, as Options.TrainShare says; else they have the machine for themselves. The end
// of ctx ends them, also where they wait; that of the engine lets them go on.
func (e *Engine) GiveWay(ctx context.Context) context.Context {
	return backend.WithYield(ctx, func() func() { return e.gate.Launch(ctx) })
}
