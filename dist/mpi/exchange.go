//go:build linux && (mpi || cuda)

package mpi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"
)

// maxMessage is the most bytes of a message. Longer ones are cut, since counts are C ints.
var maxMessage = 1 << 30

const (
	// spin is the time in which requests are polled without a pause after one has ended.
	spin = 100 * time.Microsecond
	// pause is the time between polls after that.
	pause = 50 * time.Microsecond
	// refresh is the age at which the ranks that Waiting returns are determined again.
	refresh = 10 * time.Millisecond
	// tags is the number of tags that the MPI standard guarantees.
	tags = 1 << 15
)

// message is a pending request.
type message struct {
	rank    int // peer
	receive int // number of bytes to receive; -1 sends
	request handle
	status  status
}

// abandoned keeps the buffers of exchanges that were given up in place, because MPI may
// still access them.
var abandoned struct {
	sync.Mutex
	pins []*runtime.Pinner
}

// exchange sends send(i) to every other rank i and receives recv[i] from it.
func (w *world) exchange(ctx context.Context, call string, recv [][]byte, send func(rank int) []byte) error {
	if err := w.failed.Load(); err != nil {
		return *err
	}
	if err := ctx.Err(); err != nil {
		return w.lost(call, nil, context.Cause(ctx))
	}
	// The tag tells calls apart, so that ranks that make different calls do not mix bytes.
	tag := int32(w.calls % (tags / 2) * 2)
	if w.calls++; call == allGather {
		tag++
	}
	pin := new(runtime.Pinner)
	defer w.awaited.Store(nil)
	err := w.do(ctx, func() error { return w.transfer(ctx, call, tag, pin, recv, send) })
	if err == nil {
		pin.Unpin()
		return nil
	}
	abandoned.Lock()
	abandoned.pins = append(abandoned.pins, pin)
	abandoned.Unlock()
	var m *missing
	if errors.As(err, &m) {
		return w.lost(call, m.ranks, m.cause)
	}
	return w.lost(call, nil, err)
}

// missing is the error of a transfer: the peers whose messages have not arrived.
type missing struct {
	ranks []int
	cause error
}

func (m *missing) Error() string { return m.cause.Error() }

// transfer starts the messages of a call and polls them until all have arrived.
func (w *world) transfer(ctx context.Context, call string, tag int32, pin *runtime.Pinner, recv [][]byte, send func(rank int) []byte) error {
	var pending []*message
	start := func(rank int, data []byte, receive bool) error {
		for len(data) > 0 {
			part := data[:min(len(data), maxMessage)]
			data = data[len(part):]
			pin.Pin(&part[0])
			m := &message{rank: rank, receive: -1}
			pending = append(pending, m)
			function, f := "MPI_Isend", w.lib.isend
			if receive {
				m.receive = len(part)
				function, f = "MPI_Irecv", w.lib.irecv
			}
			if err := w.lib.check(function, f(unsafe.Pointer(&part[0]), int32(len(part)), w.lib.bytes, int32(rank), tag, w.comm, &m.request)); err != nil {
				return err
			}
		}
		return nil
	}
	for i := 1; i < w.size; i++ { // receives first, so that messages find their place
		from := (w.rank + w.size - i) % w.size
		if err := start(from, recv[from], true); err != nil {
			return &missing{[]int{from}, err}
		}
	}
	for i := 1; i < w.size; i++ { // each rank begins with another peer
		to := (w.rank + i) % w.size
		if err := start(to, send(to), false); err != nil {
			return &missing{[]int{to}, err}
		}
	}
	// All have to end, so only the first one is polled: MPI makes progress with the others too.
	for last, told := time.Now(), (time.Time{}); len(pending) > 0; {
		done, err := w.done(pending[0])
		if err != nil {
			return &missing{[]int{pending[0].rank}, err}
		}
		now := time.Now()
		if done {
			last, pending = now, pending[1:]
		}
		if now.Sub(last) < spin {
			continue
		}
		ended := ctx.Err() != nil
		if ended || now.Sub(told) >= refresh {
			told = now
			if pending, err = w.unfinished(pending); err != nil {
				return err
			}
			w.awaited.Store(&awaited{call, peers(pending)})
		}
		if ended && len(pending) > 0 {
			return &missing{peers(pending), context.Cause(ctx)}
		}
		select {
		case status := <-w.aborts:
			w.lib.abort(w.lib.world, int32(status))
			os.Exit(status)
		default:
			time.Sleep(pause)
		}
	}
	return nil
}

// done reports whether a message has ended. A message that is shorter than expected is an
// error; MPI reports longer ones.
func (w *world) done(m *message) (bool, error) {
	var done, n int32
	if err := w.lib.check("MPI_Test", w.lib.test(&m.request, &done, &m.status)); err != nil {
		return false, err
	}
	if done == 0 || m.receive < 0 {
		return done != 0, nil
	}
	if err := w.lib.check("MPI_Get_count", w.lib.getCount(&m.status, w.lib.bytes, &n)); err != nil {
		return false, err
	}
	if int(n) != m.receive {
		return false, fmt.Errorf("rank %d sends %d bytes, %d are expected", m.rank, n, m.receive)
	}
	return true, nil
}

// unfinished returns the messages that have not ended. An error is that of one of them.
func (w *world) unfinished(pending []*message) (rest []*message, err error) {
	for _, m := range pending {
		done, err := w.done(m)
		if err != nil {
			return nil, &missing{[]int{m.rank}, err}
		}
		if !done {
			rest = append(rest, m)
		}
	}
	return rest, nil
}

// peers returns the ranks of messages, in order.
func peers(messages []*message) (ranks []int) {
	for _, m := range messages {
		ranks = append(ranks, m.rank)
	}
	slices.Sort(ranks)
	return slices.Compact(ranks)
}
