package store

import (
	"errors"
	"fmt"
	"sync"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

// Errors of Space.
var (
	ErrLimit      = errors.New("too many bytes are stored")
	ErrNearlyFull = errors.New("the disk of the server is nearly full")
)

// Space limits the bytes that clients store.
type Space struct {
	store *Store
	limit int64 // of all together; 0 means none
	keep  int64 // bytes to leave free on the disk

	mu    sync.Mutex
	used  int64
	sizes map[string]int64 // by ID
}

// NewSpace returns the space of objects in the store. limit is the maximum of their bytes together,
// or 0. keep is the number of bytes to leave free on the disk; 0 means 1 GiB, or 5 % of a smaller
// disk.
func (s *Store) NewSpace(limit, keep int64) *Space {
	if _, total, ok := fsatomic.FreeSpace(s.dir); ok && keep == 0 {
		keep = min(1<<30, total/20)
	}
	return &Space{store: s, limit: limit, keep: keep, sizes: map[string]int64{}}
}

// Reserve counts bytes before they are written. Errors: ErrNearlyFull, ErrLimit.
func (x *Space) Reserve(n int64) error {
	if free, _, ok := fsatomic.FreeSpace(x.store.dir); ok && free-n < x.keep {
		return ErrNearlyFull
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.limit > 0 && n > x.limit-x.used {
		return fmt.Errorf("%w: at most %d", ErrLimit, x.limit)
	}
	x.used += n
	return nil
}

// Return releases reserved bytes.
func (x *Space) Return(n int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.used -= n
}

// Add counts an object unless it is counted already. reserved bytes of it were counted before.
func (x *Space) Add(id string, bytes, reserved int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, counted := x.sizes[id]; counted {
		bytes = 0
	} else {
		x.sizes[id] = bytes
	}
	x.used += bytes - reserved
}

// Drop stops counting an object.
func (x *Space) Drop(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.used -= x.sizes[id]
	delete(x.sizes, id)
}
