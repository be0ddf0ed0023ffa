// Package local connects goroutines of one process as the ranks of a dist.World, which
// move bytes through memory: one rank per device of a machine, and tests.
package local

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lorafuse/lorafuse/dist"
)

// ErrAborted is the cause of calls that fail because a rank called Abort or Close.
var ErrAborted = errors.New("a rank has ended")

// New returns the Worlds of n ranks of this process.
func New(n int) []dist.World {
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i
	}
	return newHub(&job{ended: make(chan struct{})}, ranks, n)
}

// job is the state that a World and those split from it share.
type job struct {
	once   sync.Once
	ended  chan struct{} // closed by the first failure
	reason error
}

func (j *job) fail(reason error) {
	j.once.Do(func() {
		j.reason = reason
		close(j.ended)
	})
}

// hub joins the calls of the ranks of a World.
type hub struct {
	job  *job
	size int
	mu   sync.Mutex
	now  *meeting
	left map[int]bool // ranks that have closed
}

// meeting is one call of all ranks.
type meeting struct {
	call    string
	offers  []any // of each rank; nil if it has not come
	came    int
	copied  int
	broken  bool          // a rank has left before all came
	all     chan struct{} // closed when all have come
	finally chan struct{} // closed when all have copied what they take
}

// missing returns the ranks that have not come.
func (m *meeting) missing() (ranks []int) {
	for i, offer := range m.offers {
		if offer == nil {
			ranks = append(ranks, i)
		}
	}
	return ranks
}

type world struct {
	hub         *hub
	rank, local int
	localSize   int
}

func newHub(j *job, locals []int, localSize int) []dist.World {
	h := &hub{job: j, size: len(locals), left: map[int]bool{}}
	worlds := make([]dist.World, len(locals))
	for i, local := range locals {
		worlds[i] = &world{hub: h, rank: i, local: local, localSize: localSize}
	}
	return worlds
}

func (w *world) Rank() int      { return w.rank }
func (w *world) Size() int      { return w.hub.size }
func (w *world) LocalRank() int { return w.local }
func (w *world) LocalSize() int { return w.localSize }

func (w *world) AllToAll(ctx context.Context, recv, send [][]byte) error {
	return w.meet(ctx, "all-to-all", send, func(offers []any) error {
		for i, offer := range offers {
			if err := take(recv[i], offer.([][]byte)[w.rank], i); err != nil {
				return err
			}
		}
		return nil
	})
}

func (w *world) AllGather(ctx context.Context, parts [][]byte) error {
	return w.meet(ctx, "all-gather", parts[w.rank], func(offers []any) error {
		for i, offer := range offers {
			if i == w.rank {
				continue
			}
			if err := take(parts[i], offer.([]byte), i); err != nil {
				return err
			}
		}
		return nil
	})
}

// take copies the message of rank i.
func take(dst, src []byte, i int) error {
	if len(dst) != len(src) {
		return fmt.Errorf("rank %d sends %d bytes, %d are expected", i, len(src), len(dst))
	}
	copy(dst, src)
	return nil
}

// choice is the offer of a rank to Split. The first rank of a color makes the Worlds.
type choice struct {
	color, local int
	worlds       chan []dist.World
}

func (w *world) Split(ctx context.Context, color int) (dist.World, error) {
	own := &choice{color: color, local: w.local, worlds: make(chan []dist.World, 1)}
	var first *choice
	var locals []int
	place := 0
	err := w.meet(ctx, "split", own, func(offers []any) error {
		for i, offer := range offers {
			c := offer.(*choice)
			if c.color != color {
				continue
			}
			if first == nil {
				first = c
			}
			if i == w.rank {
				place = len(locals)
			}
			locals = append(locals, c.local)
		}
		if first == own {
			own.worlds <- newHub(w.hub.job, locals, w.localSize)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	worlds := <-first.worlds
	first.worlds <- worlds
	return worlds[place], nil
}

// Waiting implements dist.Waiter.
func (w *world) Waiting() (call string, ranks []int) {
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now == nil || h.now.offers[w.rank] == nil {
		return "", nil
	}
	return h.now.call, h.now.missing()
}

func (w *world) Abort(status int) {
	w.hub.job.fail(fmt.Errorf("rank %d aborted with status %d: %w", w.rank, status, ErrAborted))
}

func (w *world) Close() error {
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left[w.rank] = true
	if h.now != nil && h.now.offers[w.rank] == nil {
		h.job.fail(fmt.Errorf("rank %d has left: %w", w.rank, ErrAborted))
	}
	return nil
}

// meet waits until all ranks have made the call with their offers, lets copy take from
// them, and waits until all have.
func (w *world) meet(ctx context.Context, call string, offer any, copy func(offers []any) error) error {
	h := w.hub
	if err := ctx.Err(); err != nil {
		return w.lost(call, nil, err)
	}
	h.mu.Lock()
	if len(h.left) > 0 {
		for rank := range h.left {
			h.job.fail(fmt.Errorf("rank %d has left: %w", rank, ErrAborted))
		}
	}
	m := h.now
	if m == nil {
		m = &meeting{call: call, offers: make([]any, h.size), all: make(chan struct{}), finally: make(chan struct{})}
		h.now = m
	}
	if m.call != call || m.offers[w.rank] != nil {
		h.mu.Unlock()
		return w.lost(call, nil, fmt.Errorf("rank %d calls %s where others call %s", w.rank, call, m.call))
	}
	m.offers[w.rank] = offer
	if m.came++; m.came == h.size {
		h.now = nil
		if !m.broken {
			close(m.all)
		}
	}
	h.mu.Unlock()
	if err := w.wait(ctx, m); err != nil {
		return err
	}
	err := copy(m.offers)
	h.mu.Lock()
	if m.copied++; m.copied == h.size {
		close(m.finally)
	}
	h.mu.Unlock()
	<-m.finally // copying does not block, and peers may read the offer until then
	if err != nil {
		return w.lost(call, nil, err)
	}
	return nil
}

// wait waits until all ranks have come to a meeting. If it fails, no rank copies.
func (w *world) wait(ctx context.Context, m *meeting) error {
	select {
	case <-m.all:
		return nil
	case <-ctx.Done():
	case <-w.hub.job.ended:
	}
	w.hub.mu.Lock()
	select {
	case <-m.all:
		w.hub.mu.Unlock()
		return nil
	default:
	}
	m.broken = true
	missing := m.missing()
	w.hub.mu.Unlock()
	return w.lost(m.call, missing, context.Cause(ctx))
}

// lost ends the job, whose first reason is reported.
func (w *world) lost(call string, missing []int, cause error) error {
	if cause != nil {
		w.hub.job.fail(cause)
	}
	<-w.hub.job.ended
	return &dist.LostError{Call: call, Ranks: missing, Cause: w.hub.job.reason}
}
