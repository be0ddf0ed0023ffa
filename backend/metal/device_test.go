//go:build cgo && (darwin || (metal && metalfake))

package metal_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/metal"
	"github.com/lorafuse/lorafuse/dev/gputest"
)

func opened(t *testing.T, o backend.Options) *metal.Device {
	t.Helper()
	need(t)
	dev, err := metal.Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return dev
}

func TestLargeCopies(t *testing.T) { gputest.LargeCopies(t, opened(t, backend.Options{})) }

func TestClosed(t *testing.T) {
	need(t)
	dev, err := metal.Open(backend.Options{})
	require.NoError(t, err)
	gputest.Closed(t, dev, dev.Programs)
}

func TestOrder(t *testing.T) { gputest.Order(t, opened(t, backend.Options{})) }

func TestProfile(t *testing.T) {
	profile := &backend.Profile{}
	gputest.Profile(t, opened(t, backend.Options{Profile: profile}), profile)
}

func TestRestless(t *testing.T) { gputest.Restless(t, opened(t, backend.Options{})) }
