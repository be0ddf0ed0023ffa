package engine

import (
	"context"
	"sync/atomic"
)

// leash is the context of a run: that of its caller, until it is sealed. Then the
// run goes on to its end, whatever becomes of the caller's context.
type leash struct {
	context.Context
	state atomic.Uint32
}

// What has become of a run.
const (
	leashOpen   = iota // it stops when the caller's context ends
	leashSealed        // it does not
	leashCut           // it was told to stop
)

// hold puts a run on the leash, whose run before has ended.
func (l *leash) hold(ctx context.Context) {
	l.Context = ctx
	l.state.Store(leashOpen)
}

// Err implements context.Context.
func (l *leash) Err() error {
	err := l.Context.Err()
	if err != nil && (l.state.CompareAndSwap(leashOpen, leashCut) || l.state.Load() == leashCut) {
		return err
	}
	return nil
}

// seal keeps the run from stopping, and is false if it was told to already.
func (l *leash) seal() bool {
	return l.state.CompareAndSwap(leashOpen, leashSealed) || l.state.Load() == leashSealed
}
