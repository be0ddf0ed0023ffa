package ranks

import (
	"context"
	"sync/atomic"
	"time"
)

// Pauses between signs of life: short at first, since most work is.
const (
	firstPause = time.Millisecond
	lastPause  = 50 * time.Millisecond
)

// Await does the work of this rank, which makes no exchange, and waits for the work of the other
// ranks. The work may take longer than the timeout, since the ranks exchange signs of life until
// all have ended. Like Agree, Await returns an error if the work of any rank fails.
func (g *Group) Await(ctx context.Context, work func() error) error {
	if g == nil {
		return work()
	}
	var ended atomic.Bool
	lost := make(chan error, 1)
	go func() {
		lost <- g.Beat(ctx, func() byte {
			if ended.Load() {
				return 1
			}
			return 0
		}, func(states []byte) bool { return all(states, 1) })
	}()
	err := work()
	ended.Store(true)
	if lost := <-lost; lost != nil {
		return lost
	}
	return g.Agree(ctx, nil, err)
}

// Beat exchanges signs of life until see, which gets the states of all ranks, returns true, as it
// must on all of them at once.
func (g *Group) Beat(ctx context.Context, state func() byte, see func(states []byte) (end bool)) error {
	parts, states := make([][]byte, g.Size()), make([]byte, g.Size())
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		for i := range parts {
			parts[i] = states[i : i+1]
		}
		states[g.Rank()] = state()
		if err := g.Exchange(ctx, nil, func(ctx context.Context) error { return g.World.AllGather(ctx, parts) }); err != nil {
			return err
		}
		if see(states) {
			return nil
		}
		time.Sleep(pause)
	}
}

// all reports whether all states have the bits of mask.
func all(states []byte, mask byte) bool {
	for _, s := range states {
		if s&mask != mask {
			return false
		}
	}
	return true
}
