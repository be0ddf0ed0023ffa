package share_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/internal/serve/share"
)

const (
	ms       = time.Millisecond
	patience = 2 * ms
)

// train runs launches of some lengths in turns until ctx ends, and gives the time that
// they ran.
func train(ctx context.Context, g *share.Gate, launches ...time.Duration) (ran time.Duration) {
	for i := 0; ; i++ {
		over := g.Launch(ctx)
		if ctx.Err() != nil {
			over()
			return ran
		}
		n := launches[i%len(launches)]
		time.Sleep(n)
		over()
		ran += n
	}
}

// day is how serving and training that have always something to do share a while.
type day struct {
	part            float64
	steps, launches []time.Duration
	trainers        int

	all     time.Duration
	used    share.Used
	longest time.Duration // that serving has waited behind a step, beyond the longest slice
}

func (d *day) live(t *testing.T) {
	g := share.New(d.part)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range d.trainers {
		all.Go(func() { train(ctx, g, d.launches...) })
	}
	synctest.Wait()
	g.Begin()
	begun := time.Now()
	for i := 0; i < 200 || time.Since(begun) < 2*time.Second; i++ {
		g.Begin()
		took := d.steps[i%len(d.steps)]
		time.Sleep(took)
		ended := time.Now()
		g.End(ctx)
		d.longest = max(d.longest, time.Since(ended)-time.Duration(1.0625*d.part/(1-d.part)*float64(slices.Max(d.steps))))
	}
	d.used, d.all = g.Used(), time.Since(begun)
	g.Idle()
	cancel()
	all.Wait()
}

// TestShares: over time training that always wants to run has its part of the time of a
// server that always has requests, whatever steps and launches take; and serving never
// waits longer than the slice behind a step.
func TestShares(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		length := rapid.Custom(func(r *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(1000, 20_000).Draw(r, "µs")) * time.Microsecond
		})
		d := day{
			part:     rapid.Float64Range(0.05, 0.9).Draw(r, "part"),
			steps:    rapid.SliceOfN(length, 1, 5).Draw(r, "steps"),
			launches: rapid.SliceOfN(length, 1, 5).Draw(r, "launches"),
			trainers: rapid.IntRange(1, 3).Draw(r, "trainers"),
		}
		synctest.Test(t, d.live)
		require.InDelta(r, 1, float64(d.used.Step+d.used.Slice)/float64(d.all), 1e-3, "all time is somebody's")
		require.InDelta(r, d.part, float64(d.used.Slice)/float64(d.all), 0.02)
		require.LessOrEqual(r, d.longest, time.Microsecond)
	})
}

// TestIdle: training has the machine where there is nothing to serve, and owes nothing for
// it; a step that begins stops it at its next launch.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := share.New(0.5)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ran := make(chan time.Duration)
		go func() { ran <- train(ctx, g, 3*ms) }()
		time.Sleep(10 * ms)
		g.Begin() // 2 ms before a launch is over
		time.Sleep(20 * ms)
		require.Equal(t, share.Used{Slice: 2 * ms, Idle: 10 * ms}, g.Used())
		begun := time.Now()
		g.End(ctx)
		require.Equal(t, 16*ms, time.Since(begun), "18 ms of the step's own, less the 2 of the launch")
		g.Idle() // 2 ms before a launch is over
		time.Sleep(9 * ms)
		cancel() // which lets a launch come to its end
		require.Equal(t, 12*ms+16*ms+11*ms, <-ran)
		g.End(ctx) // of nothing
		require.Equal(t, share.Used{Steps: 1, Step: 18 * ms, Slices: 1, Slice: 18 * ms, Idle: 21 * ms}, g.Used())
	})
}

// TestLongSteps: a step that takes longer than others is followed by a slice that is little
// longer, and what training lacks then it has behind others.
func TestLongSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := share.New(0.5)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		g.Begin()
		go train(ctx, g, ms/4)
		synctest.Wait()
		for i := range 60 {
			took := 10 * ms
			if i == 10 {
				took = 80 * ms
			}
			g.Begin()
			time.Sleep(took)
			begun := time.Now()
			g.End(ctx)
			slice := time.Since(begun)
			require.LessOrEqual(t, slice, 18*ms+ms/2, "behind step %d", i)
			if i < 10 || i == 59 {
				require.InDelta(t, 10*ms, slice, float64(ms))
			}
		}
		used := g.Used()
		require.InDelta(t, used.Step, used.Slice, float64(2*ms))
		cancel()
		time.Sleep(ms) // until its launch is over
	})
}

// TestDebt: what a launch takes beyond its slice is paid by the next slices.
func TestDebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := share.New(0.5)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		g.Begin()
		go train(ctx, g, 25*ms)
		synctest.Wait()
		var waits []time.Duration
		for range 8 {
			g.Begin()
			time.Sleep(10 * ms)
			begun := time.Now()
			g.End(ctx)
			waits = append(waits, time.Since(begun)/ms)
		}
		// A launch of 25: 10 in its slice, then all of a step, and half of another, whose
		// other half pays for 5 of these 15; the next pays for the rest. Steps that a launch
		// goes on into count as shorter, and slices are as long as those.
		require.Equal(t, []time.Duration{10, 0, 0, 0, 9, 0, 0, 0}, waits)
	})
}

// TestAway: serving does not wait for training that is not there, nor for long for one
// that goes away.
func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := share.New(0.5)
		ctx := t.Context()
		step := func() time.Duration {
			g.Begin()
			time.Sleep(100 * ms)
			begun := time.Now()
			g.End(ctx)
			return time.Since(begun)
		}
		require.Zero(t, step())
		go func() {
			for range 3 {
				over := g.Launch(ctx)
				time.Sleep(5 * ms)
				over()
				time.Sleep(patience / 2) // which is not to be away
			}
		}()
		require.InDelta(t, float64(18*ms), float64(step()), float64(2*patience))
		require.Zero(t, step())
		require.EqualValues(t, 1, g.Used().Slices)
	})
}

// TestEnds: a context that ends frees a launch that waits, and serving in a slice.
func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := share.New(0.9)
		g.Begin()
		ctx, cancel := context.WithCancel(t.Context())
		free := make(chan func())
		for range 2 {
			go func() { free <- g.Launch(ctx) }()
		}
		synctest.Wait()
		cancel()
		(<-free)()
		over := <-free
		time.Sleep(10 * ms)
		ended := time.Now()
		g.End(ctx) // training is there, and would have a slice
		require.Zero(t, time.Since(ended))
		over()
	})
}

// TestManyAtOnce: what serves, and many that train and come and go, end.
func TestManyAtOnce(t *testing.T) {
	g := share.New(0.5)
	serving, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for serving.Err() == nil {
				ctx, cancel := context.WithTimeout(serving, time.Duration(i)*100*time.Microsecond)
				train(ctx, g, 50*time.Microsecond)
				cancel()
			}
		})
	}
	for i := range 300 {
		g.Begin()
		time.Sleep(10 * time.Microsecond)
		g.End(serving)
		if i%10 == 0 {
			g.Idle()
		}
		g.Used()
	}
	g.Begin()
	stop()
	all.Wait()
}

// Training wants the device from the call of Launch to the end of the launch.
func TestWanted(t *testing.T) {
	g := share.New(0.5)
	require.False(t, g.Wanted())
	over := g.Launch(context.Background())
	require.True(t, g.Wanted())
	over()
	require.False(t, g.Wanted())
}
