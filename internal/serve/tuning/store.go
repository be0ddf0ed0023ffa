package tuning

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// store keeps the records of files, jobs, models and events in one file. Transactions are atomic
// and durable.
type store struct{ db *bbolt.DB }

// storeFile is the name of the file in the folder of a service.
const storeFile = "store.db"

var (
	fileBucket  = []byte("files")
	jobBucket   = []byte("jobs")
	modelBucket = []byte("models")
	eventBucket = []byte("events") // contains a bucket for each job
	metaBucket  = []byte("meta")
	formatKey   = []byte("format")
	modelKey    = []byte("model")
)

// storeFormat is the version of the record format.
const storeFormat = 1

// patience is the maximum time to wait for another server to release the file.
const patience = 2 * time.Second

func openStore(dir string) (*store, error) {
	path := filepath.Join(dir, storeFile)
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: patience})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("tuning: %s: %w", path, ErrInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("tuning: %s: %w", path, written(err))
	}
	s := &store{db}
	err = s.update(func(t *txn) error {
		for _, name := range [][]byte{fileBucket, jobBucket, modelBucket, eventBucket, metaBucket} {
			if _, err := t.tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		var format int
		if found, err := t.get(metaBucket, string(formatKey), &format); err != nil {
			return err
		} else if found && format != storeFormat {
			return fmt.Errorf("found format %d, expected %d: another version of the program has written it", format, storeFormat)
		}
		return t.put(metaBucket, string(formatKey), storeFormat)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("tuning: %s: %w", path, err), db.Close())
	}
	return s, nil
}

// belongs fails with ErrModel if the store belongs to a model with another description.
func (s *store) belongs(model string) error {
	return s.update(func(t *txn) error {
		var was string
		if found, err := t.get(metaBucket, string(modelKey), &was); err != nil || found && was == model {
			return err
		} else if found {
			return fmt.Errorf("tuning: %s: %w: it is for %s, and this one is %s", s.db.Path(), ErrModel, was, model)
		}
		return t.put(metaBucket, string(modelKey), model)
	})
}

// update runs a transaction. If it fails, nothing has changed.
func (s *store) update(change func(*txn) error) error {
	return s.failed(s.db.Update(func(tx *bbolt.Tx) error { return change(&txn{tx}) }))
}

// view runs a read-only transaction.
func (s *store) view(read func(*txn) error) error {
	return s.failed(s.db.View(func(tx *bbolt.Tx) error { return read(&txn{tx}) }))
}

func (s *store) failed(err error) error {
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	return written(err)
}

// txn is a transaction.
type txn struct{ tx *bbolt.Tx }

func (t *txn) get(bucket []byte, key string, v any) (found bool, err error) {
	raw := t.tx.Bucket(bucket).Get([]byte(key))
	if raw == nil {
		return false, nil
	}
	return true, json.Unmarshal(raw, v)
}

func (t *txn) put(bucket []byte, key string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return t.tx.Bucket(bucket).Put([]byte(key), raw)
}

func (t *txn) remove(bucket []byte, key string) error { return t.tx.Bucket(bucket).Delete([]byte(key)) }

// order returns a number larger than all that it has returned before.
func (t *txn) order() (uint64, error) { return t.tx.Bucket(metaBucket).NextSequence() }

// all returns the records of a bucket.
func all[T any](t *txn, bucket []byte) (map[string]T, error) {
	records := map[string]T{}
	err := t.tx.Bucket(bucket).ForEach(func(key, raw []byte) error {
		var v T
		if err := json.Unmarshal(raw, &v); err != nil {
			return fmt.Errorf("%s %s: %w", bucket, key, err)
		}
		records[string(key)] = v
		return nil
	})
	return records, err
}

// appendEvents numbers and stores events of a job.
func (t *txn) appendEvents(job string, events ...Event) error {
	b, err := t.tx.Bucket(eventBucket).CreateBucketIfNotExists([]byte(job))
	for i := 0; i < len(events) && err == nil; i++ {
		if events[i].Number, err = b.NextSequence(); err != nil {
			break
		}
		var raw []byte
		if raw, err = json.Marshal(events[i]); err == nil {
			err = b.Put(binary.BigEndian.AppendUint64(nil, events[i].Number), raw)
		}
	}
	return err
}

// events iterates over the events of a job, latest first, optionally starting before a number.
func (t *txn) events(job string, before uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		b := t.tx.Bucket(eventBucket).Bucket([]byte(job))
		if b == nil {
			return
		}
		c := b.Cursor()
		key, raw := c.Last()
		if before > 0 {
			if key, _ = c.Seek(binary.BigEndian.AppendUint64(nil, before)); key != nil {
				key, raw = c.Prev()
			} else {
				key, raw = c.Last()
			}
		}
		for ; key != nil; key, raw = c.Prev() {
			var e Event
			err := json.Unmarshal(raw, &e)
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// forgetMetrics removes the metrics of a job from a step on, which will run again.
func (t *txn) forgetMetrics(job string, from int) error {
	var gone []uint64
	for e, err := range t.events(job, 0) {
		if err != nil {
			return err
		}
		if e.Metrics == nil {
			continue
		}
		if e.Metrics.Step < from {
			break
		}
		gone = append(gone, e.Number)
	}
	b := t.tx.Bucket(eventBucket).Bucket([]byte(job))
	for _, n := range gone {
		if err := b.Delete(binary.BigEndian.AppendUint64(nil, n)); err != nil {
			return err
		}
	}
	return nil
}
