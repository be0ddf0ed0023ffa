package cputime_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/lorafuse/lorafuse/dev/cputime"
)

// busy takes so much of a processor, by some clock.
func busy(d time.Duration) {
	for begin := time.Now(); time.Since(begin) < d; {
	}
}

// Waiting costs nothing, work does, and what comes before is nobody's.
func TestLeast(t *testing.T) {
	var got []time.Duration
	var order []int
	testing.Benchmark(func(b *testing.B) {
		order = nil
		got = cputime.Least(b, 2, func(i int) { order = append(order, i); busy(time.Millisecond) }, func(i int) {
			if i == 0 {
				time.Sleep(20 * time.Millisecond)
				return
			}
			for range 20_000_000 {
				order[0] = 0
			}
		})
	})
	assert.Equal(t, []int{0, 1}, order[:2], "in turns")
	assert.Len(t, got, 2)
	assert.Positive(t, got[0])
	assert.Less(t, got[0], 5*time.Millisecond, "asleep")
	assert.Greater(t, got[1], 2*got[0], "at work")
}
