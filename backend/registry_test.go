package backend_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
)

// named is a device that has a name and nothing else.
type named struct {
	backend.Device
	name string
	opts backend.Options
}

// register makes a backend of the given rank known; devices is what it lists.
func register(name string, rank int, devices int, err error) {
	backend.Register(name, backend.Driver{
		Rank:    rank,
		Devices: func() ([]backend.Info, error) { return make([]backend.Info, devices), err },
		Open: func(o backend.Options) (backend.Device, error) {
			if err != nil {
				return nil, err
			}
			return named{name: name, opts: o}, nil
		},
	})
}

var errDriver = errors.New("no driver")

// TestRegistry is one test: the registry is global.
func TestRegistry(t *testing.T) {
	_, err := backend.Open("", backend.Options{})
	require.ErrorIs(t, err, backend.ErrUnavailable)
	const missing = `add the import _ "github.com/lorafuse/lorafuse/backend/all", which brings in those of this build`
	assert.EqualError(t, err, "backend auto: backend unavailable: no backend of this program has a device: "+missing)
	for _, name := range []string{backend.CPU, backend.CUDA} {
		_, err = backend.Open(name, backend.Options{})
		assert.EqualError(t, err, "backend "+name+": backend unavailable: this program imports no backend: "+missing)
		_, err = backend.Devices(name)
		assert.ErrorContains(t, err, missing)
	}

	_, err = backend.Count("")
	require.ErrorIs(t, err, backend.ErrUnavailable)

	register("planner", -1, 1, nil)
	_, err = backend.Open(backend.Auto, backend.Options{})
	require.ErrorIs(t, err, backend.ErrUnavailable, "a backend below zero is never taken by itself")
	assert.ErrorContains(t, err, missing)
	_, err = backend.Open(backend.CPU, backend.Options{})
	assert.ErrorContains(t, err, "this program does not import it: "+missing+"; this program has: planner")

	register("broken", 9, 1, errDriver)
	register("empty", 8, 0, nil)
	_, err = backend.Open(backend.Auto, backend.Options{})
	assert.EqualError(t, err, "backend auto: backend unavailable: no backend of this program has a device: backend broken: no driver; backend empty lists none")

	register("slow", 0, 1, nil)
	register("fast", 5, 2, nil)
	assert.Equal(t, []string{"broken", "empty", "fast", "slow", "planner"}, backend.Registered())
	assert.Equal(t, []string{"broken", backend.CPU, backend.CUDA, "empty", "fast", backend.Metal, "planner", "slow"}, backend.Known())
	for _, auto := range []string{"", backend.Auto} {
		dev, err := backend.Open(auto, backend.Options{Threads: 3})
		require.NoError(t, err)
		assert.Equal(t, "fast", dev.(named).name, "the best that has a device")
		assert.Equal(t, 3, dev.(named).opts.Threads)
		n, err := backend.Count(auto)
		require.NoError(t, err)
		assert.Equal(t, 2, n, "those of the backend that Open selects")
	}
	n, err := backend.Count("slow")
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	_, err = backend.Count("broken")
	require.ErrorIs(t, err, errDriver)
	assert.NoError(t, backend.SkipReason("broken"))
	passed := backend.SkipReason("fast")
	require.ErrorIs(t, passed, errDriver, "why a better one was not taken")
	assert.EqualError(t, passed, "backend broken: no driver\nbackend empty: backend unavailable: no device")
	dev, err := backend.Open("planner", backend.Options{})
	require.NoError(t, err)
	assert.Equal(t, "planner", dev.(named).name)

	_, err = backend.Open("broken", backend.Options{})
	require.ErrorIs(t, err, errDriver)
	assert.ErrorContains(t, err, "backend broken:")
	_, err = backend.Devices("broken")
	require.ErrorIs(t, err, errDriver)
	infos, err := backend.Devices("fast")
	require.NoError(t, err)
	assert.Len(t, infos, 2)

	faulty := fmt.Errorf("%w: 2 and 2 are 5", backend.ErrFaulty)
	backend.Register("faulty", backend.Driver{
		Rank:    7,
		Devices: func() ([]backend.Info, error) { return make([]backend.Info, 1), nil },
		Open:    func(backend.Options) (backend.Device, error) { return nil, faulty },
	})
	dev, err = backend.Open(backend.Auto, backend.Options{})
	require.NoError(t, err, "what computes something else is passed over")
	assert.Equal(t, "fast", dev.(named).name)
	assert.ErrorContains(t, backend.SkipReason("fast"), "backend faulty: faulty device: 2 and 2 are 5")
	n, err = backend.Count(backend.Auto)
	require.NoError(t, err)
	assert.Equal(t, 2, n, "of the backend that Open has selected")
	_, err = backend.Open("faulty", backend.Options{})
	require.ErrorIs(t, err, faulty)

	_, err = backend.Open(backend.CUDA, backend.Options{})
	require.ErrorIs(t, err, backend.ErrUnavailable)
	assert.ErrorContains(t, err, "this program has: broken, empty, faulty, fast, slow, planner")
	_, err = backend.Devices("tpu")
	require.ErrorIs(t, err, backend.ErrUnavailable)
	assert.ErrorContains(t, err, `backend "tpu"`)
	assert.ErrorContains(t, err, "known: auto, broken, cpu")
	assert.Panics(t, func() { register("slow", 0, 1, nil) })
}

func TestDone(t *testing.T) {
	assert.NoError(t, backend.Done{}.Wait(context.Background()))
}

func TestPrecision(t *testing.T) {
	for _, p := range []backend.Precision{backend.F32, backend.BF16, backend.AutoPrecision} {
		got, err := backend.ParsePrecision(p.String())
		require.NoError(t, err)
		assert.Equal(t, p, got)
	}
	_, err := backend.ParsePrecision("fp16")
	assert.EqualError(t, err, `precision: found "fp16", expected f32, bf16 or auto, did you mean "bf16"?`)
	assert.Equal(t, "Precision(9)", backend.Precision(9).String())
}

// TestAutoPrecision: what a device is opened with is settled by its backend.
func TestAutoPrecision(t *testing.T) {
	var opened backend.Precision
	backend.Register("rounding", backend.Driver{
		Rank: -1, Precision: backend.BF16,
		Open: func(o backend.Options) (backend.Device, error) {
			opened = o.Precision
			return nil, nil
		},
	})
	for given, want := range map[backend.Precision]backend.Precision{
		backend.AutoPrecision: backend.BF16, backend.F32: backend.F32, backend.BF16: backend.BF16,
	} {
		_, err := backend.Open("rounding", backend.Options{Precision: given})
		require.NoError(t, err)
		assert.Equal(t, want, opened)
		assert.Equal(t, want, given.On("rounding"))
	}
	assert.Equal(t, backend.F32, backend.AutoPrecision.On(backend.CPU), "and f32 where no backend says otherwise")
}
