//go:build !cuda || !linux

package telemetry

import "fmt"

func openGPUs() (gpus, error) {
	return nil, fmt.Errorf("%w: this build has no NVML, build with -tags cuda on Linux", ErrUnavailable)
}
