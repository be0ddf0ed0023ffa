//go:build cgo && (darwin || (metal && metalfake))

package metal_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/metal"
	"github.com/lorafuse/lorafuse/dev/gputest"
)

// forms runs a test on a device of each tier of shaders that there is.
func forms(t *testing.T, o backend.Options, run func(t *testing.T, dev backend.Device)) {
	need(t)
	for _, tier := range []string{"plain", "simd"} {
		t.Run(tier, func(t *testing.T) {
			t.Setenv(metal.EnvTier, tier)
			dev, err := metal.Open(o)
			if err != nil && strings.Contains(err.Error(), metal.EnvTier) {
				t.Skip(err)
			}
			require.NoError(t, err)
			defer func() { require.NoError(t, dev.Close()) }()
			run(t, dev)
		})
	}
}

func TestRows(t *testing.T)         { forms(t, backend.Options{}, gputest.Rows) }
func TestSums(t *testing.T)         { forms(t, backend.Options{}, gputest.Sums) }
func TestExactBits(t *testing.T)    { forms(t, backend.Options{}, gputest.ExactBits) }
func TestAdamWInOrder(t *testing.T) { forms(t, backend.Options{}, gputest.AdamWInOrder) }
func TestHead(t *testing.T)         { forms(t, backend.Options{}, gputest.Head) }

func TestAdamW8Together(t *testing.T) { tables(t, gputest.AdamW8Together, 6) }
func TestAdamWTogether(t *testing.T)  { tables(t, gputest.AdamWTogether, 4) }

// tables checks a step on many tensors with tables of addresses, which is one launch, and without.
func tables(t *testing.T, check func(t *testing.T, dev backend.Device, launches int), without int) {
	for _, c := range []struct{ name, tables, command string }{{"without", "0", ""}, {"with", "1", ""}, {"in parts", "1", "0.001"}} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(metal.EnvTables, c.tables)
			t.Setenv(metal.EnvCommand, c.command)
			forms(t, backend.Options{}, func(t *testing.T, dev backend.Device) {
				launches := without
				if dev.(*metal.Device).Tables() {
					launches = 1
				}
				check(t, dev, launches)
			})
		})
	}
}

func TestImages(t *testing.T) {
	forms(t, backend.Options{Precision: backend.BF16}, gputest.Images)
}

func TestHeadRounded(t *testing.T) {
	forms(t, backend.Options{Precision: backend.BF16}, gputest.HeadRounded)
}
