package generate

import (
	"context"

	"github.com/lorafuse/lorafuse/nn"
)

// prepare makes what all programs of an adapter read and none changes: once. It
// lies with the adapter.
func (h *host) prepare(ctx context.Context, b *nn.Builder, t *tuning) error {
	p := b.Preparation()
	if p == nil || t.prepared {
		return nil
	}
	e, err := p.Compile(h.dev)
	if err != nil {
		return err
	}
	defer e.Close()
	if err := h.fill(ctx, e, b, t); err != nil {
		return err
	}
	dims := e.Program().MaxDims()
	for _, a := range e.Program().Args {
		if a.Written {
			if _, err := t.store.Alloc(a.Name, a.Type.Bytes(dims)); err != nil {
				return err
			}
		}
	}
	if err = h.bind(e, nil, t); err == nil {
		err = e.RunWait(ctx)
	}
	t.prepared = err == nil
	return err
}
