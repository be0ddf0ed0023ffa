package data

import (
	"context"
	"iter"
	"sync"
)

// inOrder calls work for every item on several goroutines, and done with the results in item order on the caller's
// goroutine. It stops at the first error in that order, regardless of timing, and returns when all its goroutines have
// ended.
func inOrder[T, R any](ctx context.Context, workers int, items iter.Seq2[T, error], work func(T) (R, error), done func(R) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)

	type result struct {
		value R
		err   error
	}
	queue := make(chan chan result, 2*workers) // limits the number of uncollected results
	free := make(chan struct{}, workers)
	wg.Go(func() {
		defer close(queue)
		for item, err := range items {
			slot := make(chan result, 1)
			select {
			case <-ctx.Done():
				return
			case queue <- slot:
			}
			if err != nil {
				slot <- result{err: err}
				return
			}
			free <- struct{}{}
			wg.Go(func() {
				value, err := work(item)
				slot <- result{value, err}
				<-free
			})
		}
	})
	for slot := range queue {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		r := <-slot
		if r.err != nil {
			return r.err
		}
		if err := done(r.value); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}
