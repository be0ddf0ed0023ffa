package engine

import (
	"context"

	"github.com/lorafuse/lorafuse/nn"
)

// Cache holds the keys and values of earlier tokens on the device, in rows of
// which the first ones are in use. Programs of one cache share it.
type Cache struct {
	rows   int
	tables map[string]bool // names
	store  *Store
}

// NewCache is a cache with room for so many tokens.
func (r *Runtime) NewCache(rows int) *Cache {
	return &Cache{rows, map[string]bool{}, NewStore(r.dev)}
}

// Rows is the number of tokens that there is room for.
func (c *Cache) Rows() int { return c.rows }

// Bytes is its memory on the device.
func (c *Cache) Bytes() int {
	if c == nil {
		return 0
	}
	return c.store.Bytes()
}

// RowBytes is the memory that a token takes on the device in the cache of a draft.
func (d *Draft) RowBytes() (n int) {
	c := d.spec.Cache
	for _, a := range d.Program.Args {
		if c != nil && c.tables[a.Name] {
			n += a.Bytes(nil) / c.rows
		}
	}
	return n
}

// describe takes over what building the model put into n. Programs of one model have the
// same entries: after the first nothing changes.
func (c *Cache) describe(n *nn.Cache) {
	for _, e := range n.Entries {
		if !c.tables[e.Param] {
			c.tables[e.Param] = true
		}
	}
}

// CopyFrom copies the first n rows of another cache, whose programs were loaded
// as those of this one.
func (c *Cache) CopyFrom(ctx context.Context, old *Cache, n int) error {
	if old == nil || n == 0 {
		return nil
	}
	for name := range c.tables {
		rows := make([]byte, n*(old.store.Buffer(name).Size()/old.rows))
		if err := old.store.Get(ctx, name, rows); err != nil {
			return err
		}
		if err := c.store.Set(ctx, name, rows); err != nil {
			return err
		}
	}
	return nil
}

// CopyRows copies n rows of the cache, all of which has been read and written by runs
// that were waited for, to others of it.
func (c *Cache) CopyRows(ctx context.Context, from, to, n int) error {
	for name := range c.tables {
		row := c.store.Buffer(name).Size() / c.rows
		if err := c.store.Copy(ctx, name, from*row, to*row, n*row); err != nil {
			return err
		}
	}
	return nil
}

// Free gives the memory back.
func (c *Cache) Free() {
	if c != nil {
		c.store.Free()
	}
}
