package batching

import "github.com/lorafuse/lorafuse/host"

// Beside returns a host of the engine's model, with its weights, to train with while the
// engine serves. While there are requests, its runs stop at their next launch, and go on in
// slices of time behind the steps of the engine, as Options.TrainShare says; else they have
// the machine for themselves. The end of a run's context ends it, also where it waits; that of
// the engine lets it go on. The host is closed before the engine's device is.
func (e *Engine) Beside() *host.Host { return e.machine.host.Beside(e.gate.Launch) }
