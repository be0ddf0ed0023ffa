// Package store keeps the objects that clients of a server create: files, jobs, training runs and
// checkpoints. Each object has a record with its owner, and may have a file or a folder.
//
// A [Store] is a folder that one process uses at a time. Records change in transactions, which are
// atomic and durable. Files and folders are written by package fsatomic before the record that
// refers to them, and removed after it; [Sweep] removes what a crash has left without a record.
package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

// Errors of this package.
var (
	ErrClosed  = errors.New("closed")
	ErrInUse   = errors.New("the folder belongs to another server")
	ErrFormat  = errors.New("another version of the program has written it")
	ErrNoSpace = errors.New("the disk of the server is full: nothing was kept")
)

// Store is an open store. It is safe for concurrent use.
type Store struct {
	dir string
	db  *bbolt.DB

	writing sync.Mutex   // held by Update
	mu      sync.RWMutex // guards the records of all tables
}

// fileName is the name of the file with the records.
const fileName = "store.db"

var (
	metaBucket = []byte("meta")
	formatKey  = "format"
)

// format is the version of the file.
const format = 1

// patience is the maximum time to wait for another process to release the file.
const patience = 2 * time.Second

// Section is a part of a store: a [Table] or a [Log].
type Section interface {
	open(s *Store, tx *bbolt.Tx) error
}

// Open opens the store in a folder, which it creates if missing. create is called in the
// transaction that creates the records; it may be nil. Errors: ErrInUse, ErrFormat, ErrNoSpace.
func Open(dir string, create func(*Tx) error, sections ...Section) (_ *Store, err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	s := &Store{dir: dir}
	path := s.Path(fileName)
	s.db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: patience})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("%s: %w", path, ErrInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, Full(err))
	}
	err = s.Update(func(t *Tx) error {
		if _, err := t.tx.CreateBucketIfNotExists(metaBucket); err != nil {
			return err
		}
		for _, x := range sections {
			if err := x.open(s, t.tx); err != nil {
				return err
			}
		}
		var found int
		if known, err := t.Meta(formatKey, &found); err != nil {
			return err
		} else if known && found != format {
			return fmt.Errorf("found format %d, expected %d: %w; use that version, or another folder", found, format, ErrFormat)
		} else if !known && create != nil {
			if err := create(t); err != nil {
				return err
			}
		}
		return t.SetMeta(formatKey, format)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), s.db.Close())
	}
	return s, nil
}

// Close closes the store. Later changes fail with ErrClosed.
func (s *Store) Close() error { return s.db.Close() }

// Path returns the path of a file or folder in the store.
func (s *Store) Path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

// Update runs a transaction, one at a time. If it fails, nothing has changed. It fails
// with ErrClosed, ErrNoSpace and as change does.
func (s *Store) Update(change func(*Tx) error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	var t *Tx
	err := s.db.Update(func(tx *bbolt.Tx) error {
		t = &Tx{tx: tx}
		return change(t)
	})
	if err != nil {
		return failed(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, apply := range t.applied {
		apply()
	}
	return nil
}

func failed(err error) error {
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	return Full(err)
}

// Full returns ErrNoSpace with the cause for a write that failed because the disk is full, and other
// errors unchanged.
func Full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

// Tx is a transaction.
type Tx struct {
	tx      *bbolt.Tx
	applied []func() // changes of tables after the commit
}

// Order returns a number larger than all that it has returned before.
func (t *Tx) Order() (uint64, error) { return t.tx.Bucket(metaBucket).NextSequence() }

// Meta reads a value that belongs to the whole store.
func (t *Tx) Meta(key string, v any) (found bool, err error) {
	raw := t.tx.Bucket(metaBucket).Get([]byte(key))
	if raw == nil {
		return false, nil
	}
	return true, json.Unmarshal(raw, v)
}

// SetMeta stores a value that belongs to the whole store.
func (t *Tx) SetMeta(key string, v any) error { return put(t.tx.Bucket(metaBucket), []byte(key), v) }

func put(b *bbolt.Bucket, key []byte, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return b.Put(key, raw)
}

// Sweep removes the entries of a folder that keep does not report, and unfinished writes. The folder
// may be missing.
func (s *Store) Sweep(folder string, keep func(entry string) bool) error {
	dir := s.Path(folder)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = fsatomic.Sweep(dir)
	}
	for _, e := range entries {
		if err == nil && !keep(e.Name()) {
			err = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
	return err
}
