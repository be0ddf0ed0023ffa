// Package testdevice opens the device for tests of models, adapters, training and generation. The requirements, and so
// the tests, are the same for all devices: LORAFUSE_TEST_BACKEND names the backend, by default the CPU. Deviation
// measures the error of results.
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

// Backend returns the name of the backend for tests.
func Backend() string {
	if name := os.Getenv(Env); name != "" {
		return name
	}
	return backend.CPU
}

// Open opens a device for the duration of a test. The test fails if the requested backend is unavailable. It is
// skipped if it requires batch invariance and the device does not have it.
func Open(t testing.TB, o backend.Options) backend.Device {
	t.Helper()
	return OpenOn(t, Backend(), o)
}

// OpenOn opens a device like Open, but on the given backend, for comparisons.
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

// Assembly reports whether the CPU's kernels are in assembly. Builds with the tag purego use Go kernels, which sum in
// another order.
func Assembly() bool {
	info, _ := debug.ReadBuildInfo()
	return info == nil || !slices.Contains(info.Settings, debug.BuildSetting{Key: "-tags", Value: "purego"})
}

// CopyAllocs returns the maximum number of allocations of a copy to or from a device. The CPU allocates nothing. Other
// devices allocate the fence, which the caller may keep, with the channel that ends it, and the calls to the device's
// goroutine.
func CopyAllocs(info backend.Info) int {
	if info.GPU {
		return 8
	}
	return 0
}
