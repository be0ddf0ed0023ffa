// Package fork runs functions on goroutines of their own and brings the panic of
// one home, to the goroutine that waits for them: a page of a mapped file that
// cannot be read thereby ends the work that needed it, and not the process.
package fork

import (
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Group is some functions that run side by side. The zero Group is ready to be
// used.
type Group struct {
	wg    sync.WaitGroup
	first atomic.Pointer[any] // that a function has panicked with
}

// Go begins a function. In it an access to memory that cannot be read is a panic.
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

// Wait returns when all functions have, and panics with what the first of those
// has that did.
func (g *Group) Wait() {
	g.wg.Wait()
	if r := g.first.Load(); r != nil {
		panic(*r)
	}
}
