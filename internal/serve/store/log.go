package store

import (
	"encoding/binary"
	"encoding/json"
	"slices"

	"go.etcd.io/bbolt"
)

// Log holds a list of numbered entries for each key. The entries are not kept in memory.
type Log[T any] struct {
	name  []byte
	store *Store
}

// NewLog returns a log, to be passed to [Open].
func NewLog[T any](name string) *Log[T] { return &Log[T]{name: []byte(name)} }

func (l *Log[T]) open(s *Store, tx *bbolt.Tx) error {
	l.store = s
	_, err := tx.CreateBucketIfNotExists(l.name)
	return err
}

// Append appends an entry, which number completes with its number in the list, from 1.
func (l *Log[T]) Append(t *Tx, key string, number func(n uint64) T) error {
	b, err := t.tx.Bucket(l.name).CreateBucketIfNotExists([]byte(key))
	if err != nil {
		return err
	}
	n, err := b.NextSequence()
	if err != nil {
		return err
	}
	return put(b, numbered(n), number(n))
}

// Latest calls each with the entries of a list, latest first, until it returns false. Entries from
// the number before on are left out, unless it is 0.
func (l *Log[T]) Latest(key string, before uint64, each func(T) bool) error {
	return failed(l.store.db.View(func(tx *bbolt.Tx) error {
		return l.latest(tx, key, before, func(_ []byte, v T) bool { return each(v) })
	}))
}

func (l *Log[T]) latest(tx *bbolt.Tx, list string, before uint64, each func(key []byte, v T) bool) error {
	b := tx.Bucket(l.name).Bucket([]byte(list))
	if b == nil {
		return nil
	}
	c := b.Cursor()
	key, raw := c.Last()
	if before > 0 {
		if key, _ = c.Seek(numbered(before)); key != nil {
			key, raw = c.Prev()
		} else {
			key, raw = c.Last()
		}
	}
	for ; key != nil; key, raw = c.Prev() {
		var v T
		if err := json.Unmarshal(raw, &v); err != nil {
			return err
		}
		if !each(key, v) {
			break
		}
	}
	return nil
}

// Drop removes the entries of a list for which drop is true, latest first, until it asks to stop.
func (l *Log[T]) Drop(t *Tx, list string, drop func(T) (gone, stop bool)) error {
	var dropped [][]byte
	err := l.latest(t.tx, list, 0, func(key []byte, v T) bool {
		gone, stop := drop(v)
		if gone {
			dropped = append(dropped, slices.Clone(key))
		}
		return !stop
	})
	for _, key := range dropped {
		if err == nil {
			err = t.tx.Bucket(l.name).Bucket([]byte(list)).Delete(key)
		}
	}
	return err
}

func numbered(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
