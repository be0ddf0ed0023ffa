package store

import (
	"encoding/json"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/lorafuse/lorafuse/internal/serve/keys"
)

// Record is the record of an object that a client has made. Records are values: a change stores
// another one.
type Record interface {
	Key() string     // in its table
	OwnedBy() string // name of the API key that made it
}

// Table holds the records of one kind. Readers see a change after its transaction.
type Table[T Record] struct {
	name  []byte
	store *Store
	all   map[string]T
}

// NewTable returns a table, to be passed to [Open].
func NewTable[T Record](name string) *Table[T] {
	return &Table[T]{name: []byte(name), all: map[string]T{}}
}

func (x *Table[T]) open(s *Store, tx *bbolt.Tx) error {
	x.store = s
	b, err := tx.CreateBucketIfNotExists(x.name)
	if err != nil {
		return err
	}
	return b.ForEach(func(key, raw []byte) error {
		var v T
		if err := json.Unmarshal(raw, &v); err != nil {
			return fmt.Errorf("%s %s: %w", x.name, key, err)
		}
		x.all[string(key)] = v
		return nil
	})
}

// Get returns the record of a key.
func (x *Table[T]) Get(key string) (v T, ok bool) {
	x.store.mu.RLock()
	defer x.store.mu.RUnlock()
	v, ok = x.all[key]
	return v, ok
}

// Find returns the record of a key if the client sees it.
func (x *Table[T]) Find(who keys.Client, key string) (v T, ok bool) {
	if v, ok = x.Get(key); !ok || !who.Sees(v.OwnedBy()) {
		var none T
		return none, false
	}
	return v, true
}

// List returns the records that a client sees, sorted by compare unless it is nil.
func (x *Table[T]) List(who keys.Client, compare func(a, b T) int) []T {
	x.store.mu.RLock()
	list := make([]T, 0, len(x.all))
	for _, v := range x.all {
		if who.Sees(v.OwnedBy()) {
			list = append(list, v)
		}
	}
	x.store.mu.RUnlock()
	if compare != nil {
		slices.SortFunc(list, compare)
	}
	return list
}

// All returns the records of all clients, in no order.
func (x *Table[T]) All() []T { return x.List(keys.Client{}, nil) }

// Put stores a record, in place of that with the same key.
func (x *Table[T]) Put(t *Tx, v T) error {
	t.applied = append(t.applied, func() { x.all[v.Key()] = v })
	return put(t.tx.Bucket(x.name), []byte(v.Key()), v)
}

// Remove removes a record if it exists.
func (x *Table[T]) Remove(t *Tx, key string) error {
	t.applied = append(t.applied, func() { delete(x.all, key) })
	return t.tx.Bucket(x.name).Delete([]byte(key))
}
