//go:build cuda && linux

package cuda

import "github.com/lorafuse/lorafuse/backend"

// Flops is the peak of a GPU with these properties; clock is in MHz.
func Flops(name string, capability, processors int, clock float64, p backend.Precision) float64 {
	return (&properties{name: name, capability: capability, processors: processors, clock: 1e6 * clock}).flops(p)
}
