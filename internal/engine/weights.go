package engine

import (
	"context"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// weights holds one copy of a model's weights on a device, shared by all its runtimes. It is
// safe for concurrent use.
type weights struct {
	mu    sync.Mutex // held during uploads, so others wait for them
	store *Store
	users int
}

// share adds a user, which must call release.
func (w *weights) share() *weights {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.users++
	return w
}

// release drops one user and frees the weights with the last one.
func (w *weights) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.users--; w.users == 0 {
		w.store.Free()
	}
}

// bring uploads the named weights of the model that are not on the device yet.
func (w *weights) bring(ctx context.Context, m nn.Weights, names []string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.store.Import(ctx, m, names)
}

// buffer returns the named weight, or nil if it is not on the device.
func (w *weights) buffer(name string) backend.Buffer {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.store.Buffer(name)
}

func (w *weights) bytes() int {
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.store.Bytes()
}
