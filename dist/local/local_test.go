package local_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dev/disttest"
	"github.com/lorafuse/lorafuse/dist"
	"github.com/lorafuse/lorafuse/dist/local"
)

// TestWorld: every method works for every number of ranks.
func TestWorld(t *testing.T) {
	for size := 1; size <= 5; size++ {
		for _, err := range disttest.Each(local.New(size), func(w dist.World) error { return disttest.Check(context.Background(), w) }) {
			require.NoError(t, err)
		}
	}
}

// TestLostRanks: the error names the ranks that did not come, and the World stays unusable.
func TestLostRanks(t *testing.T) {
	worlds := local.New(4)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	errs := disttest.Each([]dist.World{worlds[0], worlds[2]}, func(w dist.World) error { return w.AllGather(ctx, make([][]byte, 4)) })
	for _, err := range errs {
		var lost *dist.LostError
		require.ErrorAs(t, err, &lost)
		require.Equal(t, []int{1, 3}, lost.Ranks)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualError(t, err, "all-gather: ranks 1, 3 did not answer: context deadline exceeded")
	}
	require.ErrorIs(t, worlds[1].AllGather(context.Background(), make([][]byte, 4)), dist.ErrLost)
}

// TestWaiting: another goroutine learns which ranks a call waits for.
func TestWaiting(t *testing.T) {
	worlds := local.New(3)
	waiting := worlds[1].(dist.Waiter).Waiting
	done := make(chan error, 1)
	go func() { done <- worlds[1].AllGather(context.Background(), make([][]byte, 3)) }()
	require.Eventually(t, func() bool { call, _ := waiting(); return call == "all-gather" }, time.Minute, time.Millisecond)
	_, ranks := waiting()
	require.Equal(t, []int{0, 2}, ranks)
	call, ranks := worlds[0].(dist.Waiter).Waiting()
	require.Empty(t, call)
	require.Empty(t, ranks)
	for _, err := range disttest.Each([]dist.World{worlds[0], worlds[2]}, func(w dist.World) error { return w.AllGather(context.Background(), make([][]byte, 3)) }) {
		require.NoError(t, err)
	}
	require.NoError(t, <-done)
	call, ranks = waiting()
	require.Empty(t, call)
	require.Empty(t, ranks)
}

// TestOtherCalls: ranks that make different calls, or send what the receiver does not
// expect, all fail.
func TestOtherCalls(t *testing.T) {
	for _, err := range disttest.Each(local.New(2), func(w dist.World) error {
		if w.Rank() == 0 {
			return w.AllGather(context.Background(), make([][]byte, 2))
		}
		return w.AllToAll(context.Background(), make([][]byte, 2), make([][]byte, 2))
	}) {
		require.ErrorIs(t, err, dist.ErrLost)
	}
	failed := 0
	for _, err := range disttest.Each(local.New(2), func(w dist.World) error {
		parts := [][]byte{make([]byte, 3), make([]byte, 3)}
		if w.Rank() == 1 {
			parts[0] = make([]byte, 2)
		}
		return w.AllGather(context.Background(), parts)
	}) {
		if err != nil {
			failed++
			require.ErrorContains(t, err, "rank 0 sends 3 bytes, 2 are expected")
		}
	}
	require.Equal(t, 1, failed)
}

// TestAbort: a rank that aborts ends the calls of the others, in Worlds made by Split too.
func TestAbort(t *testing.T) {
	for _, err := range disttest.Each(local.New(5), func(w dist.World) error {
		part, err := w.Split(context.Background(), w.Rank()%2)
		if err != nil {
			return err
		}
		if w.Rank() == 4 {
			w.Abort(75)
			return nil
		}
		for err == nil { // until the abort reaches it
			err = part.AllGather(context.Background(), make([][]byte, part.Size()))
		}
		if !errors.Is(err, local.ErrAborted) {
			return err
		}
		return nil
	}) {
		require.NoError(t, err)
	}
}

// TestClose: a rank that is closed leaves the others only if they call again.
func TestClose(t *testing.T) {
	worlds := local.New(2)
	require.NoError(t, worlds[1].Close())
	require.ErrorIs(t, worlds[0].AllGather(context.Background(), make([][]byte, 2)), local.ErrAborted)
}
