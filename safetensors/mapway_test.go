package safetensors

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Each way is tried; then the one whose best chunk was the cheaper is taken.
func TestMapWays(t *testing.T) {
	for _, faster := range []int{byCall, byTouch} {
		var w mapWays
		tried := [2]int{}
		for range 2 * mapTrials {
			way := w.choose()
			tried[way]++
			took := 3 * time.Millisecond
			if way == faster {
				took = time.Millisecond
			}
			w.record(way, 1<<20, took)
		}
		assert.Equal(t, [2]int{mapTrials, mapTrials}, tried)
		assert.Equal(t, faster, w.choose())
		w.record(faster, 1<<20, time.Second) // one slow chunk changes nothing
		w.record(1-faster, 0, 0)             // nor does one without bytes
		assert.Equal(t, faster, w.choose())
	}
	var w mapWays
	for range 2 * mapTrials {
		w.choose()
	}
	assert.Equal(t, byCall, w.choose(), "while nothing has been measured")
}
