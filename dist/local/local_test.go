package local_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dist"
	"github.com/lorafuse/lorafuse/dist/local"
)

// each runs f on every rank and returns their errors.
func each(worlds []dist.World, f func(w dist.World) error) []error {
	errs := make([]error, len(worlds))
	var wg sync.WaitGroup
	for i, w := range worlds {
		wg.Go(func() { errs[i] = f(w) })
	}
	wg.Wait()
	return errs
}

// TestLostRanks: the error names the ranks that did not come, and the World stays unusable.
func TestLostRanks(t *testing.T) {
	worlds := local.New(4)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	errs := each([]dist.World{worlds[0], worlds[2]}, func(w dist.World) error { return w.AllGather(ctx, make([][]byte, 4)) })
	for _, err := range errs {
		var lost *dist.LostError
		require.ErrorAs(t, err, &lost)
		require.Equal(t, []int{1, 3}, lost.Ranks)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualError(t, err, "all-gather: ranks 1, 3 did not answer: context deadline exceeded")
	}
	require.ErrorIs(t, worlds[1].AllGather(context.Background(), make([][]byte, 4)), dist.ErrLost)
}

// TestOtherCalls: ranks that make different calls, or send what the receiver does not
// expect, all fail.
func TestOtherCalls(t *testing.T) {
	for _, err := range each(local.New(2), func(w dist.World) error {
		if w.Rank() == 0 {
			return w.AllGather(context.Background(), make([][]byte, 2))
		}
		return w.AllToAll(context.Background(), make([][]byte, 2), make([][]byte, 2))
	}) {
		require.ErrorIs(t, err, dist.ErrLost)
	}
	failed := 0
	for _, err := range each(local.New(2), func(w dist.World) error {
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

// TestGather: messages of different lengths reach every rank; Broadcast gives that of one.
func TestGather(t *testing.T) {
	for _, err := range each(local.New(5), func(w dist.World) error {
		all, err := dist.Gather(context.Background(), w, make([]byte, 3*w.Rank()))
		if err != nil {
			return err
		}
		for i, m := range all {
			if len(m) != 3*i {
				return fmt.Errorf("message %d has %d bytes", i, len(m))
			}
		}
		got, err := dist.Broadcast(context.Background(), w, 3, []byte(fmt.Sprint("from ", w.Rank())))
		if err == nil && string(got) != "from 3" {
			err = fmt.Errorf("received %q", got)
		}
		return err
	}) {
		require.NoError(t, err)
	}
}

// TestSplit: ranks of a color form a World in their order, which works beside the whole
// one; a rank that aborts ends both.
func TestSplit(t *testing.T) {
	for _, err := range each(local.New(5), func(w dist.World) error {
		part, err := w.Split(context.Background(), w.Rank()%2)
		if err != nil {
			return err
		}
		if part.Rank() != w.Rank()/2 || part.Size() != 3-w.Rank()%2 || part.LocalRank() != w.Rank() || part.LocalSize() != 5 {
			return fmt.Errorf("rank %d became %d of %d, local %d", w.Rank(), part.Rank(), part.Size(), part.LocalRank())
		}
		all, err := dist.Gather(context.Background(), part, []byte{byte(w.Rank())})
		if err != nil {
			return err
		}
		for i, m := range all {
			if m[0] != byte(2*i+w.Rank()%2) {
				return fmt.Errorf("rank %d of color %d is %d", i, w.Rank()%2, m[0])
			}
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
