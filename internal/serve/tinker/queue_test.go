package tinker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Tasks are done in the order of their numbers, in whatever order they come; those of
// lanes that have something to do are done in turns; and each once.
func TestQueueOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lanes := rapid.IntRange(1, 4).Draw(t, "lanes")
		type arrival struct{ lane, number int }
		var arrivals []arrival
		for l := range lanes {
			for n := range rapid.IntRange(0, 12).Draw(t, "tasks") {
				arrivals = append(arrivals, arrival{l, n + 1})
			}
		}
		arrivals = rapid.Permutation(arrivals).Draw(t, "order")
		duplicates := rapid.SliceOfN(rapid.IntRange(0, max(0, len(arrivals)-1)), 0, 4).Draw(t, "again")

		q := newQueue(64, 1<<30)
		var mu sync.Mutex
		var done []arrival
		ended := map[int]bool{}
		var all []*lane
		for i := range lanes {
			all = append(all, newLane(1, func() { ended[i] = true }))
		}
		var wg sync.WaitGroup
		add := func(a arrival) error {
			return q.add(all[a.lane], int64(a.number), &task{do: func(context.Context) {
				mu.Lock()
				defer mu.Unlock()
				done = append(done, a)
				wg.Done()
			}, drop: func(error) { t.Error("dropped") }})
		}
		running := rapid.Bool().Draw(t, "it runs while they come")
		ctx, cancel := context.WithCancel(context.Background())
		start := func() { go q.run(ctx, func() []*lane { return all }) }
		if running {
			start()
		}
		for i, a := range arrivals {
			wg.Add(1)
			require.NoError(t, add(a))
			if slices.Contains(duplicates, i) {
				require.ErrorIs(t, add(a), errPast)
			}
		}
		if !running {
			start()
		}
		wg.Wait()
		cancel()
		<-q.done
		require.Len(t, done, len(arrivals))
		next := map[int]int{}
		for _, a := range done {
			next[a.lane]++
			require.Equal(t, next[a.lane], a.number, "lane %d: %v", a.lane, done)
		}
		if !running { // all was there: no lane is a task ahead of one that has some left
			left := map[int]int{}
			for _, a := range arrivals {
				left[a.lane]++
			}
			had := map[int]int{}
			for _, a := range done {
				had[a.lane]++
				for l := range lanes {
					require.True(t, left[l] == had[l] || had[a.lane] <= had[l]+1, "%v", done)
				}
			}
		}
		require.Len(t, ended, lanes)
		require.Zero(t, q.bytes)
		require.ErrorIs(t, add(arrival{0, 99}), errEnded)
	})
}

// A lane that is finished does what came without a gap, and drops the rest; or drops all.
func TestQueueFinish(t *testing.T) {
	for _, drop := range []bool{false, true} {
		t.Run(fmt.Sprint(drop), func(t *testing.T) {
			q := newQueue(64, 1<<30)
			why := errors.New("why")
			var said []string
			over := make(chan struct{})
			l := newLane(1, func() {
				said = append(said, "end")
				close(over)
			})
			for _, n := range []int64{4, 2, 1, 3, 6} {
				require.NoError(t, q.add(l, n, &task{bytes: 7, do: func(context.Context) { said = append(said, fmt.Sprint(n)) }, drop: func(err error) {
					require.ErrorIs(t, err, why)
					said = append(said, fmt.Sprintf("-%d", n))
				}}))
			}
			q.finish(l, drop, why)
			require.ErrorIs(t, q.add(l, 5, &task{}), errEnded)
			ctx, cancel := context.WithCancel(context.Background())
			go q.run(ctx, func() []*lane { return nil })
			<-over
			cancel()
			<-q.done
			if drop {
				assert.ElementsMatch(t, []string{"-1", "-2", "-3", "-4", "-6", "end"}, said)
				assert.Equal(t, "end", said[5])
			} else {
				assert.Equal(t, []string{"-6", "1", "2", "3", "4", "end"}, said)
			}
			assert.Zero(t, q.bytes)
		})
	}
}

// Tasks that may run together do, one of each lane that is ready; others run by themselves.
func TestQueueTogether(t *testing.T) {
	q := newQueue(64, 1<<30)
	const lanes = 5
	var all []*lane
	var running atomic.Int32
	var met, over sync.WaitGroup
	met.Add(lanes)
	for i := range lanes {
		l := newLane(1, nil)
		all = append(all, l)
		over.Add(3)
		for n := range int64(3) {
			x := &task{together: n != 1, do: func(context.Context) {
				defer over.Done()
				switch n {
				case 0:
					met.Done()
					met.Wait() // for those of the other lanes
				case 1:
					assert.EqualValues(t, 1, running.Add(1), "lane %d", i)
					running.Add(-1)
				}
			}}
			require.NoError(t, q.add(l, n+1, x))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	go q.run(ctx, func() []*lane { return all })
	over.Wait()
	cancel()
	<-q.done
}

// What is next is always taken: a queue that is full of what is ahead does not wait for
// ever.
func TestQueueLimits(t *testing.T) {
	q := newQueue(4, 10)
	l := newLane(1, nil)
	add := func(n, bytes int64) error { return q.add(l, n, &task{bytes: bytes}) }
	require.NoError(t, add(3, 6))
	require.NoError(t, add(4, 4))
	require.ErrorIs(t, add(2, 1), errFull)
	require.ErrorIs(t, add(5, 0), errAhead)
	require.NoError(t, add(1, 100))
	require.ErrorIs(t, add(1, 0), errPast)
	require.ErrorIs(t, add(0, 0), errPast)
}
