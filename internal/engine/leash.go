package engine

import (
	"context"
	"sync/atomic"

	"github.com/lorafuse/lorafuse/backend"
)

// leash is the context of a run. It follows the caller's context until seal is called; a
// sealed run always completes.
type leash struct {
	context.Context
	state atomic.Uint32

	launch func(context.Context) (over func()) // see Runtime.Beside
	yield  func() (over func())                // launch with the caller's context, made once
}

// States of a run.
const (
	leashOpen   = iota // it stops when the caller's context ends
	leashSealed        // it does not
	leashCut           // it was canceled
)

// hold reuses the context for a new run; its previous run must have ended. The run calls
// launch, unless it is nil, before each of its launches.
func (l *leash) hold(ctx context.Context, launch func(context.Context) (over func())) {
	l.Context, l.launch = ctx, launch
	if launch != nil && l.yield == nil {
		l.yield = func() func() { return l.launch(l.Context) }
	}
	l.state.Store(leashOpen)
}

// Value implements context.Context.
func (l *leash) Value(key any) any {
	if l.launch != nil && key == (backend.YieldKey{}) {
		return l.yield
	}
	return l.Context.Value(key)
}

// Err implements context.Context.
func (l *leash) Err() error {
	err := l.Context.Err()
	if err != nil && (l.state.CompareAndSwap(leashOpen, leashCut) || l.state.Load() == leashCut) {
		return err
	}
	return nil
}

// seal makes the run independent of the caller's context. It returns false if the run was
// already canceled.
func (l *leash) seal() bool {
	return l.state.CompareAndSwap(leashOpen, leashSealed) || l.state.Load() == leashSealed
}
