package chunks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestEach: every byte comes once.
func TestEach(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		lengths := rapid.SliceOf(rapid.Int64Range(0, 50)).Draw(r, "lengths")
		seen := make([][]int, len(lengths))
		total := int64(0)
		for i, n := range lengths {
			seen[i] = make([]int, n)
			total += n
		}
		var mu sync.Mutex
		var last int64
		o := Options{
			Size: rapid.Int64Range(1, 60).Draw(r, "size"), Threads: rapid.IntRange(0, 5).Draw(r, "threads"),
			Progress: func(done, all int64) {
				assert.Greater(r, done, last)
				assert.Equal(r, total, all)
				last = done
			},
		}
		require.NoError(r, Each(t.Context(), lengths, o, func() func(Chunk) error {
			return func(p Chunk) error {
				mu.Lock()
				defer mu.Unlock()
				assert.EqualValues(r, p.From, int64(p.Number)*o.Size)
				assert.Less(r, int64(p.Number), Count(lengths[p.Run], o.Size))
				for i := range p.Length {
					seen[p.Run][p.From+i]++
				}
				return nil
			}
		}))
		assert.Equal(r, total, last)
		for _, run := range seen {
			for _, times := range run {
				assert.Equal(r, 1, times)
			}
		}
	})
}

func TestEachStops(t *testing.T) {
	failure := errors.New("no more")
	calls := 0
	err := Each(t.Context(), []int64{100}, Options{Size: 1, Threads: 1}, func() func(Chunk) error {
		return func(p Chunk) error {
			if calls++; p.Number == 3 {
				return failure
			}
			return nil
		}
	})
	assert.ErrorIs(t, err, failure)
	assert.Equal(t, 4, calls)

	// The other goroutines stop, too.
	var all atomic.Int64
	err = Each(t.Context(), []int64{1000}, Options{Size: 1, Threads: 2}, func() func(Chunk) error {
		return func(p Chunk) error {
			if all.Add(1) == 1 {
				return failure
			}
			time.Sleep(time.Millisecond)
			return nil
		}
	})
	assert.ErrorIs(t, err, failure)
	assert.Less(t, all.Load(), int64(500))

	ctx, cancel := context.WithCancel(t.Context())
	calls = 0
	err = Each(ctx, []int64{100}, Options{Size: 1, Threads: 1}, func() func(Chunk) error {
		return func(Chunk) error {
			calls++
			cancel()
			return nil
		}
	})
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 1, calls)
}

func ExampleEach() {
	err := Each(context.Background(), []int64{5, 2}, Options{Size: 4, Threads: 1}, func() func(Chunk) error {
		return func(p Chunk) error {
			fmt.Println(p.Run, p.From, p.Length)
			return nil
		}
	})
	fmt.Println(err)
	// Output:
	// 0 0 4
	// 0 4 1
	// 1 0 2
	// <nil>
}
