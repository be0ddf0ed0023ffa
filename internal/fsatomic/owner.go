package fsatomic

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// ErrLocked is the error for a lock that another process holds.
var ErrLocked = errors.New("locked")

// Owner identifies the holder of a lock taken by [TryLock].
type Owner struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

// String formats the owner for an error message.
func (o Owner) String() string {
	if o.PID == 0 {
		return "a process that has left no name"
	}
	return fmt.Sprintf("process %d on %s, since %s", o.PID, o.Host, o.Since.Format(time.RFC3339))
}

// LockedError is an ErrLocked with the owner.
type LockedError struct {
	Path  string
	Owner Owner
}

// Error returns a message with the file and the owner.
func (e *LockedError) Error() string { return fmt.Sprintf("%s: %v by %v", e.Path, ErrLocked, e.Owner) }

// Is reports whether target is ErrLocked.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// TryLock locks the file path if it is free and writes the owner into it;
// otherwise the error is a LockedError. The lock ends with Unlock, which
// removes the file, or with the process, however that ends: the file of a dead
// process is free. Errors: ErrLocked, ErrLockUnsupported.
func TryLock(path string) (*FileLock, error) {
	f, locked, err := acquire(path)
	if err != nil {
		return nil, err
	}
	if !locked {
		defer f.Close()
		return nil, &LockedError{path, readOwner(f)}
	}
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown host"
	}
	l := &FileLock{f: f, remove: true}
	raw, err := json.Marshal(Owner{PID: os.Getpid(), Host: host, Since: time.Now().Round(time.Second)})
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt(append(raw, '\n'), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), l.Unlock())
	}
	return l, nil
}

// readOwner returns the owner recorded in the file, or the zero Owner.
func readOwner(f io.Reader) Owner {
	var o Owner
	raw, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil || json.Unmarshal(raw, &o) != nil {
		return Owner{}
	}
	return o
}
