package backendtest

import (
	"github.com/lorafuse/lorafuse/backend"
	"testing"
)

func runChaos(t *testing.T, dev backend.Device)  {}
func runDevice(t *testing.T, dev backend.Device) {}
