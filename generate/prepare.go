package generate

import (
	"context"

	"github.com/lorafuse/lorafuse/nn"
)

// prepare makes what all programs of an adapter read and none changes: once.
func (h *host) prepare(ctx context.Context, b *nn.Builder) error {
	p := b.Preparation()
	if p == nil || h.prepared {
		return nil
	}
	e, err := p.Compile(h.dev)
	if err != nil {
		return err
	}
	defer e.Close()
	if err = h.fill(ctx, e, b); err == nil {
		err = h.bind(e, nil)
	}
	if err == nil {
		err = e.RunWait(ctx)
	}
	h.prepared = err == nil
	return err
}
