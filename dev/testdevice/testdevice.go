// Package testdevice opens the device that tests of models, adapters, training
// and generating run on. What they hold a device to is the same for all
// machines, and so are the tests: LORAFUSE_TEST_BACKEND names the backend, the
// CPU if it is not set. Deviation is the measure of how far results are off.
package testdevice

import (
	"os"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/lorafuse/lorafuse/backend"
	_ "github.com/lorafuse/lorafuse/backend/all" // the backends of this build
)

// Env names the backend of tests.
const Env = "LORAFUSE_TEST_BACKEND"

// Backend is the name of the backend that tests run on.
func Backend() string {
	if name := os.Getenv(Env); name != "" {
		return name
	}
	return backend.CPU
}

// Open opens a device for the time of a test. A backend that was asked for and
// is not there fails the test; one that is not batch invariant, which the test asks
// for, skips it.
func Open(t testing.TB, o backend.Options) backend.Device {
	t.Helper()
	return OpenOn(t, Backend(), o)
}

// OpenOn is Open on a backend that the test names: what it compares with.
func OpenOn(t testing.TB, name string, o backend.Options) backend.Device {
	t.Helper()
	if o.BatchInvariant && name != backend.CPU {
		t.Skip("batch invariance is the CPU's alone")
	}
	dev, err := backend.Open(name, o)
	if err != nil {
		t.Fatalf("%s=%s: %v", Env, os.Getenv(Env), err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}

// Assembly is whether the CPU's kernels are in assembly: not in builds with the tag
// purego, which sum in another order.
func Assembly() bool {
	info, _ := debug.ReadBuildInfo()
	return info == nil || !slices.Contains(info.Settings, debug.BuildSetting{Key: "-tags", Value: "purego"})
}

// CopyAllocs is the most allocations that a copy to or from a device makes: none on the
// CPU; else its fence, which the caller may keep, with the channel that ends it, and
// the calls of the goroutine that has the device.
func CopyAllocs(info backend.Info) int {
	if info.GPU {
		return 8
	}
	return 0
}
