package batching

import "github.com/lorafuse/lorafuse/internal/host"

// Beside returns a host that shares the weights of the engine's model, for training while the
// engine serves. While there are requests, its runs pause at their next launch and continue in time
// slices after the engine's steps, as Options.TrainShare sets; otherwise they have the device for
// themselves. Canceling a run's context ends the run, even while it waits; closing the engine lets
// the run continue. Close the host before the engine's device.
func (e *Engine) Beside() *host.Host { return e.machine.host.Beside(e.gate.Launch) }
