package ranks

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/lorafuse/lorafuse/dist"
)

// heartbeat is the time between the signs of life of a rank in Do.
const heartbeat = time.Second

// Do calls f on every rank and waits for all of them. f may take longer than the timeout, since
// ranks exchange signs of life meanwhile. If f fails on a rank or is interrupted, the contexts of
// the others end, and every rank returns an error, like Agree. An interruption wraps
// ErrInterrupted.
func (g *Group) Do(ctx context.Context, f func(ctx context.Context) error) error {
	if g == nil {
		return f(ctx)
	}
	own, cancel := context.WithCancel(ctx)
	defer cancel()
	ended, agreed := make(chan error, 1), make(chan error, 1)
	go func() { agreed <- g.await(ctx, ended, cancel) }()
	returned := false
	defer func() {
		if !returned { // f panics
			close(ended)
		}
	}()
	err := f(own)
	returned = true
	if err == nil {
		err = ctx.Err()
	}
	ended <- err
	err = <-agreed
	if errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w: %w", ErrInterrupted, err)
	}
	return err
}

// await exchanges outcomes until the work of all ranks has ended, or one has an error.
func (g *Group) await(ctx context.Context, ended <-chan error, cancel func()) error {
	var err error
	for own := busy; ; {
		if own == busy {
			select {
			case e, ok := <-ended:
				if !ok {
					return nil
				}
				own, err = OutcomeOf(e), e
			case <-time.After(heartbeat):
			}
		}
		var wait bool
		var told error
		fault := g.Exchange(ctx, nil, func(ctx context.Context) (fault error) {
			wait, told, fault = g.report(ctx, own, err)
			return fault
		})
		if err := cmp.Or(fault, told); err != nil || !wait {
			cancel()
			return err
		}
	}
}

// Collect computes items on the ranks, item i on rank i mod Size, and passes the results to
// consume in the order of the items. Rank 0 reads the items and consumes the results; the items
// of the other ranks are not used. The results of the items before an error of items are
// consumed. A rank holds one item and one result at a time, and rank 0 one of each rank.
func Collect(ctx context.Context, g *Group, items iter.Seq2[[]byte, error], compute func(ctx context.Context, i int, item []byte) ([]byte, error), consume func(i int, result []byte) error) error {
	if g == nil {
		return collectAlone(ctx, items, compute, consume)
	}
	var next func() ([]byte, error, bool)
	if g.Leads() {
		var stop func()
		next, stop = iter.Pull2(items)
		defer stop()
	}
	var results [][]byte
	var unread error // ends the items of this round
	for first := 0; ; first += g.Size() {
		g.Place = fmt.Sprintf("batch %d", first+1)
		var round [][]byte
		if err := g.Do(ctx, func(context.Context) error {
			for i, result := range results {
				if err := consume(first-g.Size()+i, result); err != nil {
					return err
				}
			}
			if !g.Leads() || unread != nil {
				return unread
			}
			round, unread = read(next, g.Size())
			if len(round) == 0 {
				return unread
			}
			return nil
		}); err != nil {
			return err
		}
		item, n, err := g.deal(ctx, round)
		if err != nil || n == 0 {
			return err
		}
		var result []byte
		if err := g.Do(ctx, func(ctx context.Context) (err error) {
			if g.Rank() < n {
				result, err = compute(ctx, first+g.Rank(), item)
			}
			return err
		}); err != nil {
			return err
		}
		if results, err = g.collect(ctx, result, n); err != nil {
			return err
		}
	}
}

// Numbers yields n empty items, for work whose items every rank has.
func Numbers(n int) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for range n {
			if !yield(nil, nil) {
				return
			}
		}
	}
}

// collectAlone does the work of Collect without other ranks.
func collectAlone(ctx context.Context, items iter.Seq2[[]byte, error], compute func(ctx context.Context, i int, item []byte) ([]byte, error), consume func(i int, result []byte) error) error {
	i := 0
	for item, err := range items {
		if err != nil {
			return err
		}
		result, err := compute(ctx, i, item)
		if err != nil {
			return err
		}
		if err := consume(i, result); err != nil {
			return err
		}
		i++
	}
	return nil
}

// read returns up to n items, and the error that ends them.
func read(next func() ([]byte, error, bool), n int) (items [][]byte, err error) {
	for len(items) < n {
		item, err, ok := next()
		if err != nil || !ok {
			return items, err
		}
		items = append(items, item)
	}
	return items, nil
}

// deal sends item i of rank 0 to rank i. It returns the item of this rank, and the number of
// items.
func (g *Group) deal(ctx context.Context, items [][]byte) (own []byte, n int, err error) {
	var header []byte
	for _, item := range items {
		header = binary.LittleEndian.AppendUint64(header, uint64(len(item)))
	}
	err = g.Exchange(ctx, nil, func(ctx context.Context) error {
		header, err := dist.Broadcast(ctx, g.World, 0, header)
		if err != nil {
			return err
		}
		n = len(header) / 8
		send, recv := make([][]byte, g.Size()), make([][]byte, g.Size())
		copy(send, items)
		if g.Rank() < n {
			own = make([]byte, binary.LittleEndian.Uint64(header[8*g.Rank():]))
			recv[0] = own
		}
		return g.World.AllToAll(ctx, recv, send)
	})
	return own, n, err
}

// collect returns the results of the first n ranks on rank 0.
func (g *Group) collect(ctx context.Context, own []byte, n int) (results [][]byte, err error) {
	err = g.Exchange(ctx, nil, func(ctx context.Context) error {
		lengths, err := dist.Lengths(ctx, g.World, len(own))
		if err != nil {
			return err
		}
		send, recv := make([][]byte, g.Size()), make([][]byte, g.Size())
		send[0] = own
		if g.Leads() {
			for i := range n {
				recv[i] = make([]byte, lengths[i])
			}
			results = recv[:n]
		}
		return g.World.AllToAll(ctx, recv, send)
	})
	return results, err
}
