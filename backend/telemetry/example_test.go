package telemetry_test

import (
	"fmt"

	"github.com/lorafuse/lorafuse/backend/telemetry"
)

func ExampleEnergy() {
	before, after := 1000.0, 1450.0 // joules, as EnergyJoules of two samples
	joules, ok := telemetry.Energy(
		telemetry.Sample{GPUs: []telemetry.GPU{{UUID: "GPU-1", EnergyJoules: &before}}},
		telemetry.Sample{GPUs: []telemetry.GPU{{UUID: "GPU-1", EnergyJoules: &after}}},
	)
	const tokens = 9000
	fmt.Printf("%v: %.0f J for 1,000 tokens\n", ok, joules/tokens*1000)
	// Output: true: 50 J for 1,000 tokens
}
