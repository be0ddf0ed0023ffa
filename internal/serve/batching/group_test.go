package batching_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/lora"
)

// crew is a group of two CPUs, with what bench has of one.
type crew struct {
	*batching.Group
	*bench
	devs []*faulty
}

// newCrew opens a group of two devices with adapters. Whoever holds its gate keeps both from going on after a step.
func newCrew(t *testing.T, o batching.Options) *crew {
	t.Helper()
	c := &crew{bench: &bench{t: t, m: open(t, llama), dirs: adapters, gate: &sync.Mutex{}}}
	var devices []backend.Device
	for i := range 2 {
		d := newFaulty(t)
		d.index = i
		c.devs, devices = append(c.devs, d), append(devices, d)
	}
	o.OnStep = func(batching.Step) {
		c.gate.Lock()
		defer c.gate.Unlock()
	}
	var err error
	c.Group, err = batching.NewGroup(ctx, devices, c.m, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		c.gate.TryLock()
		c.gate.Unlock()
		c.Group.Close()
	})
	for name, dir := range adapters {
		_, err := c.Group.Adapters().Load(ctx, name, dir)
		require.NoError(t, err)
	}
	c.alone, err = generate.New(ctx, newFaulty(t), c.m, nil, generate.Options{MaxLength: c.Group.MaxLength()})
	require.NoError(t, err)
	t.Cleanup(c.alone.Close)
	return c
}

// requests returns the number of requests of each device.
func (c *crew) requests() (n []int) {
	for _, s := range c.Devices() {
		sum := 0
		for _, x := range slices.Concat(s.Running, s.Waiting) {
			sum += x.Requests
		}
		n = append(n, sum)
	}
	return n
}

// awaitAll waits until the devices have so many requests, and each has begun one.
func (c *crew) awaitAll(n int) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		sum := 0
		for i, s := range c.Devices() {
			if len(s.Running) == 0 {
				return false
			}
			sum += c.requests()[i]
		}
		return sum == n
	}, time.Minute, 100*time.Microsecond)
}

// result is what came of a request.
type result struct {
	answer answer
	err    error
}

// begin sends requests, one after the other: each has its device before the next one is sent.
func (c *crew) begin(asked []batching.Request) []chan result {
	c.t.Helper()
	var results []chan result
	sum := func() int { return c.requests()[0] + c.requests()[1] }
	before := sum()
	for i, r := range asked {
		done := make(chan result, 1)
		results = append(results, done)
		go func() {
			got, _, err := collect(c.Group, r)
			done <- result{got[0], err}
		}()
		require.Eventually(c.t, func() bool { return sum() == before+i+1 }, time.Minute, 100*time.Microsecond)
	}
	return results
}

// requireExpected waits for the results of requests, which must be those of an engine.
func (c *crew) requireExpected(t *testing.T, asked []batching.Request, results []chan result) {
	t.Helper()
	for i, done := range results {
		got := <-done
		require.NoError(t, got.err)
		require.Equal(t, c.expected(asked[i]), got.answer)
	}
}

// TestGroup: requests with several adapters, or none, get the answers that one device gives, from two at a time.
func TestGroup(t *testing.T) {
	c := newCrew(t, batching.Options{MaxTexts: 4, MaxBatchTokens: 16, PageRows: 4})
	var asked []batching.Request
	var want []answer
	for i := range 24 {
		r := greedy([]string{"", "lora", "dora"}[i/8], prompt(c.m, uint64(i), 5+i), 8)
		asked, want = append(asked, r), append(want, c.expected(r))
	}
	c.gate.Lock()
	results := c.begin(asked)
	for _, n := range c.requests() {
		assert.GreaterOrEqual(t, n, 8)
	}
	c.gate.Unlock()
	for i, done := range results {
		got := <-done
		require.NoError(t, got.err)
		require.Equal(t, want[i], got.answer)
	}
	var work sync.WaitGroup // and without order
	for i, r := range asked {
		work.Go(func() {
			got, _, err := collect(c.Group, r)
			assert.NoError(t, err)
			assert.Equal(t, want[i], got[0])
		})
	}
	work.Wait()
	all := c.Group.Stats()
	for i, s := range c.Devices() {
		assert.Equal(t, fmt.Sprint("cpu:", i), s.Device)
		assert.NoError(t, s.Lost)
		assert.Zero(t, s.Queued)
		assert.Positive(t, s.Time.Steps)
		assert.Equal(t, all.Pages.Pages, 2*s.Pages.Pages)
		assert.Zero(t, s.Pages.Used)
	}
	assert.Equal(t, []string{"dora", "lora"}, all.Resident)
	assert.Equal(t, 32, all.MaxResident)
}

// TestGroupKeepsAdapters: an adapter stays on the device that has it, a new one comes to the device that has fewer, and a
// prompt to the device that has read its beginning.
func TestGroupKeepsAdapters(t *testing.T) {
	c := newCrew(t, batching.Options{PageRows: 4})
	ask := func(adapter string, seed uint64) batching.Times {
		t.Helper()
		r := greedy(adapter, prompt(c.m, seed, 30), 2)
		got, times, err := collect(c.Group, r)
		require.NoError(t, err)
		require.Equal(t, c.expected(r), got[0])
		return times
	}
	resident := func() (names [][]string) {
		for _, s := range c.Devices() {
			names = append(names, s.Resident)
		}
		return names
	}
	for i := range 2 {
		ask("lora", uint64(i))
	}
	assert.Equal(t, [][]string{{"lora"}, nil}, resident())
	assert.Zero(t, ask("", 7).Cached)
	assert.Zero(t, ask("dora", 3).Cached)
	for i := range 3 {
		ask("lora", uint64(10+i))
		ask("dora", uint64(20+i))
	}
	assert.Equal(t, [][]string{{"lora"}, {"dora"}}, resident())
	assert.Equal(t, 28, ask("", 7).Cached, "device 1 had fewer adapters when it read this prompt")

	// Nor does an adapter that waits for its upload come to a second device.
	c.dirs = map[string]string{"new": built(t, c.m, `"target_modules":["q_proj"],"r":3`, 1)}
	_, err := c.Group.Adapters().Load(ctx, "new", c.dirs["new"])
	require.NoError(t, err)
	var asked []batching.Request
	for i := range 5 {
		asked = append(asked, greedy([]string{"", "", "new", "new", "new"}[i], prompt(c.m, uint64(30+i), 9), 4))
	}
	c.gate.Lock()
	results := c.begin(asked[:2])
	c.awaitAll(2)
	results = append(results, c.begin(asked[2:])...)
	assert.ElementsMatch(t, []int{1, 4}, c.requests())
	c.gate.Unlock()
	c.requireExpected(t, asked, results)
}

// TestGroupSpills: requests for an adapter go to a second device too if the first has no place for them.
func TestGroupSpills(t *testing.T) {
	c := newCrew(t, batching.Options{MaxTexts: 2, MaxBatchTokens: 2})
	var asked []batching.Request
	for i := range 8 {
		asked = append(asked, greedy("lora", prompt(c.m, uint64(i), 3), 2))
	}
	c.gate.Lock()
	results := c.begin(asked)
	assert.Equal(t, []int{4, 4}, c.requests())
	c.gate.Unlock()
	c.requireExpected(t, asked, results)
}

// TestGroupQueue: the limit of waiting requests is that of all devices.
func TestGroupQueue(t *testing.T) {
	c := newCrew(t, batching.Options{MaxTexts: 1, MaxQueue: 2})
	var asked []batching.Request
	for i := range 2 {
		asked = append(asked, greedy("", prompt(c.m, uint64(i), 5), 100))
	}
	c.gate.Lock()
	results := c.begin(asked)
	queued := func(each int) {
		t.Helper()
		for i := range 2 {
			require.Eventually(t, func() bool { return c.Devices()[i].Queued == each }, time.Minute, 100*time.Microsecond)
		}
	}
	queued(1) // the prompts are read
	done := make(chan error, 2)
	for range 2 {
		go func() {
			_, _, err := collect(c.Group, greedy("", []int32{1}, 1))
			done <- err
		}()
	}
	queued(1 + 2 + 256) // a token of the second prompt, two answers, and no place for the second
	_, _, err := collect(c.Group, greedy("", []int32{1}, 1))
	require.ErrorIs(t, err, batching.ErrQueue)
	require.ErrorContains(t, err, "2, at most 2")
	c.gate.Unlock()
	for range 2 {
		require.NoError(t, <-done)
		require.NoError(t, (<-results[0]).err)
		results = results[1:]
	}
}

// TestGroupLost: the requests of a device that is lost fail, in its steps or while it takes an adapter, and clients who ask
// again get answers of the other device.
func TestGroupLost(t *testing.T) {
	lost := func() error { return fmt.Errorf("Xid 79: %w", backend.ErrLost) }
	for _, x := range []struct {
		broken   int // device
		adapters []string
	}{{1, []string{"", ""}}, {1, []string{"", "lora"}}, {0, []string{"lora", ""}}} {
		c := newCrew(t, batching.Options{})
		broken, name := c.devs[x.broken], fmt.Sprintf("batching: device cpu:%d: ", x.broken)
		var asked []batching.Request
		for i := range 6 {
			asked = append(asked, greedy(x.adapters[i%2], prompt(c.m, uint64(i), 5), 20))
		}
		c.gate.Lock()
		results := c.begin(asked)
		before := c.requests()
		require.Positive(t, before[0])
		require.Positive(t, before[1])
		broken.run.Store(&lost)
		broken.alloc.Store(&lost)
		c.gate.Unlock()
		failed := 0
		for i, done := range results {
			got := <-done
			if got.err == nil {
				require.Equal(t, c.expected(asked[i]), got.answer)
				continue
			}
			failed++
			require.ErrorIs(t, got.err, backend.ErrLost)
			require.ErrorContains(t, got.err, name)
			require.ErrorContains(t, got.err, "Xid 79")
			require.Equal(t, got.err, c.Lost()[x.broken])
			again, _, err := collect(c.Group, asked[i]) // at once
			require.NoError(t, err)
			require.Equal(t, c.expected(asked[i]), again[0])
		}
		require.Equal(t, before[x.broken], failed)
		require.NoError(t, c.Lost()[1-x.broken])
		require.Eventually(t, func() bool { return len(c.Devices()[x.broken].Resident) == 0 }, time.Minute, time.Millisecond)
		require.Equal(t, c.Group.Stats().Pages.Pages, c.Devices()[1-x.broken].Pages.Pages)
		_, err := c.Group.Adapters().Load(ctx, "late", adapters["dora"])
		require.NoError(t, err)

		if x.broken == 0 { // a group that is closed is no more than that
			c.Group.Close()
			_, _, err = collect(c.Group, asked[0])
			require.ErrorIs(t, err, batching.ErrClosed)
		} else {
			c.devs[0].run.Store(&lost)
			for range 2 {
				_, _, err = collect(c.Group, asked[0])
				require.ErrorIs(t, err, backend.ErrLost)
			}
			require.NotContains(t, c.Lost(), error(nil))
			require.NoError(t, c.Group.Drain(ctx))
		}
		for _, d := range c.devs {
			d.run.Store(nil)
			d.alloc.Store(nil)
		}
	}
}

// TestGroupEnds: no device accepts requests once the group is drained or closed.
func TestGroupEnds(t *testing.T) {
	c := newCrew(t, batching.Options{})
	c.gate.Lock()
	results := c.begin([]batching.Request{greedy("", prompt(c.m, 1, 5), 30), greedy("", prompt(c.m, 2, 5), 30)})
	c.awaitAll(2)
	short, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, c.Group.Drain(short), context.Canceled)
	_, _, err := collect(c.Group, greedy("lora", []int32{1}, 1))
	require.ErrorIs(t, err, batching.ErrClosed)
	c.gate.Unlock()
	require.NoError(t, c.Group.Drain(ctx))
	for _, done := range results {
		require.NoError(t, (<-done).err)
	}
	c.Group.Close()
	_, _, err = collect(c.Group, greedy("", []int32{1}, 1))
	require.ErrorIs(t, err, batching.ErrClosed)
	_, err = c.Group.Adapters().Load(ctx, "x", adapters["lora"])
	require.ErrorIs(t, err, lora.ErrClosed)
	require.Equal(t, []error{nil, nil}, c.Lost())
	c.Group.Close()

	_, err = batching.NewGroup(ctx, nil, c.m, batching.Options{})
	require.EqualError(t, err, "batching: found no device, expected one or more")
	full, ok := newFaulty(t), newFaulty(t)
	none := func() error { return backend.ErrOutOfMemory }
	full.alloc.Store(&none)
	_, err = batching.NewGroup(ctx, []backend.Device{ok, full}, c.m, batching.Options{})
	require.ErrorIs(t, err, backend.ErrOutOfMemory)
}
