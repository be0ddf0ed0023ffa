//go:build cgo && metal && metalfake

package metal_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	_ "github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/backend/metal"
	"github.com/lorafuse/lorafuse/dev/gputest"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/weights"
)

// with sets variables of the stand-in for Metal, which reads them for each device.
func with(t *testing.T, env ...string) {
	t.Helper()
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
}

// Where there is no device the backend says so, and Auto takes another.
func TestNoDevice(t *testing.T) {
	with(t, "LFSIM_METAL_NO_DEVICE=1")
	_, err := metal.Open(backend.Options{})
	require.ErrorIs(t, err, backend.ErrUnavailable)
	_, err = backend.Devices(backend.Metal)
	require.EqualError(t, err, "backend metal: backend unavailable: this machine has no device of Metal")
	dev, err := backend.Open(backend.Auto, backend.Options{})
	require.NoError(t, err)
	require.NotEqual(t, backend.Metal, dev.Info().Backend)
	require.ErrorContains(t, backend.SkipReason(dev.Info().Backend), "no device of Metal")
	require.NoError(t, dev.Close())
}

// A device that computes something else than the host is not used, and Auto says why.
func TestSelfTest(t *testing.T) {
	before := metal.FakeObjects()
	metal.Break(t)
	_, err := metal.Open(backend.Options{})
	require.ErrorIs(t, err, backend.ErrUnavailable)
	require.ErrorContains(t, err, "the self-test of a norm and a product: row 0, column 0 is ")
	_, err = backend.Open(backend.Metal, backend.Options{})
	require.ErrorContains(t, err, "the self-test")
	dev, err := backend.Open(backend.Auto, backend.Options{})
	require.NoError(t, err)
	require.NotEqual(t, backend.Metal, dev.Info().Backend)
	require.ErrorContains(t, backend.SkipReason(dev.Info().Backend), "the self-test of a norm and a product")
	require.NoError(t, dev.Close())
	require.Equal(t, before, metal.FakeObjects(), "nothing is left of it")
}

// What a device is able to follows from what it says and what it computes.
func TestFamilies(t *testing.T) {
	for _, c := range []struct {
		env                  []string
		simd, bfloat, tables bool
		detail               string
	}{
		{[]string{"LFSIM_METAL_FAMILY=9"}, true, true, true, "Apple9 Metal3, unified memory, working set 8.00 GiB, buffers of at most 4.00 GiB, simdgroups and bfloat, tables of addresses"},
		{[]string{"LFSIM_METAL_FAMILY=7", "LFSIM_METAL_LANGUAGE=3.0"}, true, false, false, "Apple7, unified memory, working set 8.00 GiB, buffers of at most 4.00 GiB, simdgroups"},
		{[]string{"LFSIM_METAL_FAMILY=5"}, false, false, false, "Apple5, unified memory, working set 8.00 GiB, buffers of at most 4.00 GiB, threadgroups alone"},
		{[]string{"LFSIM_METAL_FAMILY=9", metal.EnvTier + "=plain"}, false, true, true, "threadgroups alone and bfloat, tables of addresses"},
		{[]string{"LFSIM_METAL_FAMILY=9", metal.EnvBFloat + "=0"}, true, false, true, "simdgroups, tables of addresses"},
		{[]string{"LFSIM_METAL_FAMILY=9", metal.EnvTables + "=0"}, true, true, false, "simdgroups and bfloat"},
	} {
		t.Run(fmt.Sprint(c.env), func(t *testing.T) {
			with(t, c.env...)
			dev, err := metal.Open(backend.Options{})
			require.NoError(t, err)
			defer dev.Close()
			require.Equal(t, c.simd, dev.Simd())
			require.Equal(t, c.bfloat, dev.BFloat())
			require.Equal(t, c.tables, dev.Tables())
			require.Contains(t, dev.Info().Detail, c.detail)
			require.True(t, dev.Info().Unified)
			require.EqualValues(t, 8<<30, dev.Info().Memory)
			require.NoError(t, gputest.Twice(dev))
		})
	}
}

// What a test forces and the device cannot is an error.
func TestForced(t *testing.T) {
	with(t, "LFSIM_METAL_FAMILY=5")
	for env, value := range map[string]string{metal.EnvTier: "simd", metal.EnvBFloat: "1", metal.EnvTables: "1"} {
		t.Setenv(env, value)
		_, err := metal.Open(backend.Options{})
		require.ErrorIs(t, err, backend.ErrUnavailable)
		require.ErrorContains(t, err, env+"="+value)
		t.Setenv(env, "fast")
		_, err = metal.Open(backend.Options{})
		require.ErrorContains(t, err, env+`: found "fast", expected`)
		t.Setenv(env, "")
	}
}

func TestOptions(t *testing.T) {
	need(t)
	for _, o := range []backend.Options{{BatchInvariant: true}, {Index: 1}, {Index: -1}} {
		_, err := metal.Open(o)
		require.ErrorIs(t, err, backend.ErrUnavailable, "%+v", o)
	}
	for load, ok := range map[backend.LoadMode]bool{backend.LoadPlain: true, backend.LoadRing: false, backend.LoadRegister: false} {
		dev, err := metal.Open(backend.Options{Load: load})
		if ok {
			require.NoError(t, err)
			require.NoError(t, dev.Close())
		} else {
			require.ErrorIs(t, err, backend.ErrLoad)
		}
	}
}

func TestOutOfMemory(t *testing.T) {
	with(t, "LFSIM_METAL_MEMORY=64M", "LFSIM_METAL_MAX_BUFFER=48M")
	dev, err := metal.Open(backend.Options{})
	require.NoError(t, err)
	defer dev.Close()
	_, err = dev.Alloc(100 << 20)
	require.ErrorIs(t, err, backend.ErrOutOfMemory)
	require.EqualError(t, err, "metal: out of memory: asked for 100.0 MiB for a buffer, the working set of the device is 64.0 MiB; a buffer has at most 48.0 MiB; this process holds nothing")
	for range 10 { // freed memory comes back
		b, err := dev.Alloc(40 << 20)
		require.NoError(t, err)
		_, err = dev.Upload(b, 0, make([]byte, 3<<20))
		require.NoError(t, err)
		b.Free()
	}
	w, err := dev.Import(weights.Data{Bytes: make([]byte, 30<<20)})
	require.NoError(t, err)
	_, err = dev.Compile(&ir.Program{Bounds: make([]ir.Bound, 1), Arena: 40 << 20})
	require.ErrorIs(t, err, backend.ErrOutOfMemory)
	require.ErrorContains(t, err, "asked for 40.0 MiB for the arena of a program of 0 launches, ")
	require.ErrorContains(t, err, "this process holds 30.0 MiB imported weights")
	w.Free()
	// What is freed and in use is waited for.
	e := gputest.Scaled(t, dev)
	dev.Unseen(func() {
		big, err := dev.Alloc(40 << 20)
		require.NoError(t, err)
		require.NoError(t, e.Bind("x", big))
		_, err = e.Run(t.Context())
		require.NoError(t, err)
		big.Free()
		require.Equal(t, 1, dev.Limbo())
	})
	b, err := dev.Alloc(40 << 20)
	require.NoError(t, err)
	b.Free()
	require.NoError(t, gputest.Twice(dev), "the device lives on")
}

// Whatever fails while a device is opened and used, the error says so, nothing is left
// behind, and what comes next works.
func TestFailures(t *testing.T) {
	for _, c := range []struct {
		fail string
		most int // calls of it
		is   error
	}{
		{"alloc", 14, nil}, {"library", 5, nil}, {"pipeline", 7, nil},
		{"command:memory", 7, backend.ErrOutOfMemory}, {"command:timeout", 7, nil},
	} {
		for n := 1; n <= c.most; n++ {
			t.Run(fmt.Sprint(c.fail, ":", n), func(t *testing.T) {
				before := metal.FakeObjects()
				with(t, fmt.Sprintf("LFSIM_METAL_FAIL=%s:%d", c.fail, n))
				attempt := func() error {
					dev, err := metal.Open(backend.Options{}) // which counts from here
					if err != nil {
						return err
					}
					defer func() { require.NoError(t, dev.Close()) }()
					failures := 0
					for range 3 {
						if e := gputest.Twice(dev); e != nil {
							failures, err = failures+1, e
						}
					}
					require.LessOrEqual(t, failures, 1, "one call fails, no more")
					if err != nil && c.is != nil {
						require.ErrorIs(t, err, c.is)
					}
					return err
				}
				if err := attempt(); err != nil {
					t.Log(err)
				}
				require.Equal(t, before, metal.FakeObjects(), "nothing is left")
				with(t, "LFSIM_METAL_FAIL=")
				require.NoError(t, attempt())
			})
		}
	}
}

// A device that fails says so from then on; the process lives, and closes it.
func TestLost(t *testing.T) {
	opening, _ := commands(t, 1)
	for fail, command := range map[string]int{"command:internal": 1, "command:fault": 2, "command:removed": 1, "lost": 1, "command:revoked": 3} {
		t.Run(fail, func(t *testing.T) {
			with(t, fmt.Sprintf("LFSIM_METAL_FAIL=%s:%d", fail, opening+command))
			before := metal.FakeObjects()
			dev, err := metal.Open(backend.Options{})
			require.NoError(t, err)
			err = gputest.Twice(dev)
			require.ErrorIs(t, err, backend.ErrLost)
			t.Log(err)
			require.ErrorIs(t, gputest.Twice(dev), backend.ErrLost, "and it stays so")
			_, err = dev.Alloc(8)
			require.ErrorIs(t, err, backend.ErrLost)
			require.NoError(t, dev.Close())
			require.Equal(t, before, metal.FakeObjects(), "nothing is left")
		})
	}
}

// TestLostUnderWay: where the device fails, the runs that are under way end, and say so.
func TestLostUnderWay(t *testing.T) {
	opening, _ := commands(t, 1)
	with(t, fmt.Sprint("LFSIM_METAL_FAIL=lost:", opening+1))
	dev, err := metal.Open(backend.Options{})
	require.NoError(t, err)
	e := gputest.Scaled(t, dev)
	var fences []backend.Fence
	dev.Unseen(func() {
		for range backend.MaxInFlight {
			f, err := e.Run(context.Background())
			require.NoError(t, err)
			fences = append(fences, f)
		}
	})
	for i, f := range fences {
		require.ErrorIs(t, f.Wait(context.Background()), backend.ErrLost, "run %d", i)
	}
	require.ErrorIs(t, e.RunWait(context.Background()), backend.ErrLost)
	require.NoError(t, dev.Close())
}

// TestTimeout: a run that takes the device too long fails, and the device works on.
func TestTimeout(t *testing.T) {
	opening, _ := commands(t, 1)
	with(t, fmt.Sprint("LFSIM_METAL_FAIL=command:timeout:", opening+1))
	dev, err := metal.Open(backend.Options{})
	require.NoError(t, err)
	defer dev.Close()
	err = gputest.Twice(dev)
	require.ErrorContains(t, err, "a command took too long")
	require.NotErrorIs(t, err, backend.ErrLost)
	require.NoError(t, gputest.Twice(dev))
}

// TestNothingLeft: a thousand steps leave as much as one, with copies that are commands
// and buffers that come and go; and a closed device leaves nothing.
func TestNothingLeft(t *testing.T) {
	before := metal.FakeObjects()
	dev, err := metal.Open(backend.Options{})
	require.NoError(t, err)
	e := gputest.Scaled(t, dev)
	step := func() {
		x, err := dev.Alloc(4 * 8 * 64)
		require.NoError(t, err)
		require.NoError(t, e.Bind("x", x))
		data := gputest.Noise(4*8*64, 3)
		got := make([]byte, len(data))
		_, err = dev.Upload(x, 0, data)
		require.NoError(t, err)
		_, err = e.Run(context.Background())
		require.NoError(t, err)
		f, err := dev.Download(got, x, 0)
		require.NoError(t, err)
		x.Free()
		require.NoError(t, f.Wait(context.Background()))
	}
	for range 10 {
		step()
	}
	dev.Settle()
	objects, memory := metal.FakeObjects(), dev.Held()
	for range 1000 {
		step()
	}
	dev.Settle()
	require.LessOrEqual(t, metal.FakeObjects(), objects+8, "stages of copies are kept, some")
	require.LessOrEqual(t, dev.Held(), memory+8*(64<<10))
	after := metal.FakeObjects()
	for range 200 {
		step()
	}
	dev.Settle()
	require.Equal(t, after, metal.FakeObjects())
	require.NoError(t, dev.Close())
	require.Equal(t, before, metal.FakeObjects())
}
