package ranks_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lorafuse/lorafuse/dev/disttest"
	"github.com/lorafuse/lorafuse/dist"
	"github.com/lorafuse/lorafuse/dist/local"
	"github.com/lorafuse/lorafuse/internal/ranks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// numbers yields n items, and then an error if it is not nil.
func numbers(n int, err error) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for i := range n {
			if !yield(fmt.Append(nil, "item ", i), nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// collect returns the results of n items on some ranks, and the error of each rank. compute may
// be nil.
func collect(ctx func(rank int) context.Context, size, n int, read error, compute func(rank, i int) error) (results []string, errs []error) {
	errs = disttest.Each(local.New(size), func(w dist.World) error {
		g, err := ranks.New(context.Background(), w, "eval", time.Minute)
		if err != nil {
			return err
		}
		if g != nil {
			g.Status = func(error) int { return 7 }
		}
		var items iter.Seq2[[]byte, error]
		if w.Rank() == 0 {
			items = numbers(n, read)
		}
		return ranks.Collect(ctx(w.Rank()), g, items, func(ctx context.Context, i int, item []byte) ([]byte, error) {
			if i%size != w.Rank() {
				return nil, fmt.Errorf("rank %d gets item %d", w.Rank(), i)
			}
			if compute != nil {
				if err := compute(w.Rank(), i); err != nil {
					return nil, err
				}
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			return fmt.Appendf(nil, "%s has number %d%s", item, i, strings.Repeat("!", i%3)), nil
		}, func(i int, result []byte) error {
			if w.Rank() != 0 || i != len(results) {
				return fmt.Errorf("rank %d consumes item %d after %d", w.Rank(), i, len(results))
			}
			results = append(results, string(result))
			return nil
		})
	})
	return results, errs
}

func background(int) context.Context { return context.Background() }

// TestCollect: rank 0 gets the results in the order of the items for every number of ranks and
// items, and those before an error of reading.
func TestCollect(t *testing.T) {
	broken := errors.New("line 7: not JSON")
	for n := range 10 {
		want, errs := collect(background, 1, n, nil, nil)
		require.NoError(t, errs[0])
		require.Len(t, want, n)
		for size := 2; size <= 4; size++ {
			got, errs := collect(background, size, n, nil, nil)
			require.NoError(t, errors.Join(errs...))
			require.Equal(t, want, got, "%d items on %d ranks", n, size)

			got, errs = collect(background, size, n, broken, nil)
			require.Equal(t, want, got, "%d items and an error on %d ranks", n, size)
			require.ErrorIs(t, errs[0], broken)
			for _, err := range errs[1:] {
				require.ErrorIs(t, err, ranks.ErrElsewhere)
				require.ErrorContains(t, err, "line 7: not JSON")
			}
		}
	}
}

// TestCollectFails: all ranks end with the error of one, which has its status.
func TestCollectFails(t *testing.T) {
	results, errs := collect(background, 3, 9, nil, func(_, i int) error {
		if i == 4 {
			return errors.New("out of memory")
		}
		return nil
	})
	require.Len(t, results, 3)
	var remote *ranks.RemoteError
	for rank, err := range errs {
		require.ErrorContains(t, err, "out of memory")
		require.Equal(t, rank > 0, errors.Is(err, ranks.ErrElsewhere))
		if rank != 1 {
			require.ErrorAs(t, err, &remote)
			require.Equal(t, 7, remote.Status)
			require.ErrorContains(t, err, "eval: rank 1 on ")
		}
	}
}

// TestCollectInterrupted: the interruption of one rank is one of all.
func TestCollectInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	_, errs := collect(func(rank int) context.Context {
		if rank == 1 {
			return ctx
		}
		return context.Background()
	}, 3, 9, nil, func(rank, i int) error {
		if i == 4 {
			cancel()
		}
		return nil
	})
	for _, err := range errs {
		require.ErrorIs(t, err, ranks.ErrInterrupted)
	}
}

// TestDoStops: the failure of a rank ends the contexts of ranks that are still at work.
func TestDoStops(t *testing.T) {
	broken := errors.New("no such file")
	errs := disttest.Each(local.New(3), func(w dist.World) error {
		g, err := ranks.New(context.Background(), w, "eval", time.Minute)
		if err != nil {
			return err
		}
		return g.Do(context.Background(), func(ctx context.Context) error {
			if w.Rank() == 2 {
				return broken
			}
			<-ctx.Done()
			return ctx.Err()
		})
	})
	require.ErrorIs(t, errs[2], broken)
	for _, err := range errs {
		require.ErrorContains(t, err, "no such file")
		require.NotErrorIs(t, err, ranks.ErrInterrupted)
	}
}
