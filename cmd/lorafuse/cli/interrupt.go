package cli

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// interrupts ends a context on the first SIGINT or SIGTERM, and the process on the second. A command may handle SIGINT
// itself.
type interrupts struct {
	signals chan os.Signal
	mu      sync.Mutex
	handler func() // of SIGINT, or nil
}

// interruptsKey is the key of the interrupts of a context.
type interruptsKey struct{}

// watchInterrupts returns a context that ends on a signal.
func watchInterrupts(parent context.Context) (context.Context, *interrupts) {
	i := &interrupts{signals: make(chan os.Signal, 1)}
	ctx, cancel := context.WithCancel(context.WithValue(parent, interruptsKey{}, i))
	signal.Notify(i.signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for s := range i.signals {
			if s == os.Interrupt && i.handled() {
				continue
			}
			signal.Stop(i.signals)
			cancel()
			return
		}
	}()
	return ctx, i
}

// handled calls the handler, and reports whether there is one.
func (i *interrupts) handled() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.handler != nil {
		i.handler()
	}
	return i.handler != nil
}

// stop ends the watch.
func (i *interrupts) stop() { signal.Stop(i.signals) }

// onInterrupt makes SIGINT call f instead of ending ctx. A nil f undoes that.
func onInterrupt(ctx context.Context, f func()) {
	if i, ok := ctx.Value(interruptsKey{}).(*interrupts); ok {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.handler = f
	}
}
