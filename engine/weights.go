package engine

import (
	"context"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/model"
)

// weights are those of a model on a device, once for all runtimes that have them. They
// are safe for concurrent use.
type weights struct {
	mu    sync.Mutex // held while some are brought to the device: others wait for them
	store *Store
	users int
}

// share is for one more runtime, which releases them.
func (w *weights) share() *weights {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.users++
	return w
}

// release frees them where nobody has them any more.
func (w *weights) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.users--; w.users == 0 {
		w.store.Free()
	}
}

// bring brings weights of the model to the device, those that are not there yet.
func (w *weights) bring(ctx context.Context, m *model.Model, names []string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.store.Import(ctx, m, names)
}

// buffer gives the weight called name, nil where none is there.
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
