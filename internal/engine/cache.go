package engine

import (
	"context"

	"github.com/lorafuse/lorafuse/internal/nn"
)

// Cache holds the keys and values of earlier tokens on the device. The first rows are in use.
// All programs planned with a cache share it.
type Cache struct {
	rows   int
	tables map[string]bool // names
	store  *Store
}

// NewCache returns a cache for up to rows tokens.
func (r *Runtime) NewCache(rows int) *Cache {
	return &Cache{rows, map[string]bool{}, NewStore(r.dev)}
}

// Rows returns the capacity of the cache in tokens.
func (c *Cache) Rows() int { return c.rows }

// Bytes returns the device memory of the cache.
func (c *Cache) Bytes() int {
	if c == nil {
		return 0
	}
	return c.store.Bytes()
}

// RowBytes returns the device memory, in bytes, of one token in the cache of d.
func (d *Draft) RowBytes() (n int) {
	c := d.spec.Cache
	for _, a := range d.Program.Args {
		if c != nil && c.tables[a.Name] {
			n += a.Bytes(nil) / c.rows
		}
	}
	return n
}

// describe records the entries that building the model added to n. All programs of one model
// have the same entries, so only the first call changes c.
func (c *Cache) describe(n *nn.Cache) {
	for _, e := range n.Entries {
		if !c.tables[e.Param] {
			c.tables[e.Param] = true
		}
	}
}

// CopyFrom copies the first n rows of another cache. The same programs must have been loaded
// with both caches.
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

// Free releases the device memory.
func (c *Cache) Free() {
	if c != nil {
		c.store.Free()
	}
}
