//go:build cuda && linux

package cuda

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
)

// loads tracks a device's calls of Load. They access device memory from their own goroutines, so the device is closed
// only after they have ended.
type loads struct {
	mu     sync.Mutex
	closed bool
	calls  map[*loading]context.CancelCauseFunc
	ended  sync.WaitGroup
	done   backend.LoadStats
}

// enter registers a call and returns a context that ends with the device. Errors: backend.ErrClosed.
func (l *loads) enter(ctx context.Context, call *loading) (context.Context, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errClosedDevice
	}
	if l.calls == nil {
		l.calls = map[*loading]context.CancelCauseFunc{}
	}
	ctx, l.calls[call] = context.WithCancelCause(ctx)
	l.ended.Add(1)
	return ctx, nil
}

func (l *loads) leave(call *loading) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls[call](nil)
	delete(l.calls, call)
	l.ended.Done()
}

// close cancels all current calls and waits for them.
func (l *loads) close() {
	l.mu.Lock()
	l.closed = true
	for _, cancel := range l.calls {
		cancel(errClosedDevice)
	}
	l.mu.Unlock()
	l.ended.Wait()
}

var errClosedDevice = fmt.Errorf("cuda: device: %w", backend.ErrClosed)

// note adds the statistics of a call.
func (l *loads) note(s backend.LoadStats) {
	if s.Bytes == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done.Add(s)
}

// Loaded returns the total statistics of all calls of Load.
func (d *Device) Loaded() backend.LoadStats {
	d.loads.mu.Lock()
	defer d.loads.mu.Unlock()
	s := d.loads.done
	s.Trials = slices.Clone(s.Trials)
	return s
}
