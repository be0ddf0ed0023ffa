// Package fork runs functions on new goroutines and passes the first panic to
// the goroutine that waits for them. A page of a mapped file that cannot be read
// thus ends the work that needed it, not the process.
package fork

import (
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Group is a set of concurrent functions. The zero Group is ready to use.
type Group struct {
	wg    sync.WaitGroup
	first atomic.Pointer[any] // value of the first panic
}

// Go runs f on a new goroutine. In it, an access to memory that cannot be read
// panics instead of crashing the process.
func (g *Group) Go(f func()) {
	g.wg.Go(func() {
		debug.SetPanicOnFault(true)
		defer func() {
			if r := recover(); r != nil {
				g.first.CompareAndSwap(nil, &r)
			}
		}()
		f()
	})
}

// Wait returns when all functions have returned. If one has panicked, Wait
// panics with the first value.
func (g *Group) Wait() {
	g.wg.Wait()
	if r := g.first.Load(); r != nil {
		panic(*r)
	}
}
