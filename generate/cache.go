package generate

import (
	"context"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/nn"
)

// tables are the keys and values of a generator's tokens on the device, in
// rows of which the first ones are in use.
type tables struct {
	capacity int
	sizes    map[string]int // elements of a row, by the name of the table
	store    *nn.Store
}

func newTables(dev backend.Device, capacity int) *tables {
	return &tables{capacity, map[string]int{}, nn.NewStore(dev)}
}

func (t *tables) has(name string) bool { return t != nil && t.sizes[name] > 0 }

// describe takes over what building the model put into c.
func (t *tables) describe(c *nn.Cache) {
	for _, e := range c.Entries {
		t.sizes[e.Param] = e.Size
	}
}

// copyFrom copies the first n rows of each table.
func (t *tables) copyFrom(ctx context.Context, old *tables, n int) error {
	if old == nil || n == 0 {
		return nil
	}
	for name, size := range t.sizes {
		rows := make([]float32, n*size)
		if err := old.store.GetFloat32s(ctx, name, rows); err != nil {
			return err
		}
		if err := t.store.SetFloat32s(ctx, name, rows); err != nil {
			return err
		}
	}
	return nil
}

func (t *tables) free() {
	if t != nil {
		t.store.Free()
	}
}
