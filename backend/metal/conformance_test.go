//go:build cgo && (darwin || (metal && metalfake))

package metal_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/metal"
	"github.com/lorafuse/lorafuse/dev/gputest"
	"github.com/lorafuse/lorafuse/graph/conformance"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open() (backend.Device, error) { return metal.Open(backend.Options{}) }

// need skips the test where there is no device, unless LORAFUSE_REQUIRE_METAL=1 says that
// there is one.
func need(t testing.TB) {
	t.Helper()
	if _, err := metal.Devices(); err != nil {
		if os.Getenv("LORAFUSE_REQUIRE_METAL") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

func TestConformance(t *testing.T) {
	need(t)
	conformance.RunAll(t, open)
}

// TestForms: all forms of shaders compute the same operations, with tables of addresses or without.
func TestForms(t *testing.T) {
	need(t)
	long(t)
	for _, tier := range []string{"plain", "simd"} {
		for _, bfloat := range []string{"0", "1"} {
			t.Run(tier+" "+bfloat, func(t *testing.T) {
				t.Setenv(metal.EnvTier, tier)
				t.Setenv(metal.EnvBFloat, bfloat)
				t.Setenv(metal.EnvTables, bfloat)
				dev, err := open()
				if err != nil {
					t.Skip(err)
				}
				require.NoError(t, dev.Close())
				conformance.RunAll(t, open, "value", "grad", "fold")
			})
		}
	}
}

// TestParts: kernels that are dispatched in parts of their grids, one or a few threadgroups each, compute the same.
func TestParts(t *testing.T) {
	need(t)
	long(t)
	t.Setenv(metal.EnvCommand, "0.001") // less than any kernel needs
	conformance.RunAll(t, open, "value", "grad")
}

// TestRounded: precision bf16 is within what its rounding costs.
func TestRounded(t *testing.T) {
	need(t)
	conformance.RunRounded(t, func() (backend.Device, error) { return metal.Open(backend.Options{Precision: backend.BF16}) })
}

// TestStored: values of f32 that are stored as bf16.
func TestStored(t *testing.T) {
	need(t)
	conformance.RunStored(t, func() (backend.Device, error) { return metal.Open(backend.Options{Precision: backend.BF16}) }, true, gputest.Stored...)
}

// long are tests that only some runs have the time for.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("LORAFUSE_LONG") != "1" {
		t.Skip("LORAFUSE_LONG=1 runs it")
	}
}

// TestAllocations: a run leaves no garbage of Go's.
func TestAllocations(t *testing.T) {
	need(t)
	long(t)
	conformance.RunAllocs(t, open)
}

func BenchmarkDevice(b *testing.B) {
	need(b)
	conformance.RunBenchmarks(b, open)
}
