package fsatomic

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// ErrLocked is wrapped where somebody else holds a lock.
var ErrLocked = errors.New("locked")

// Owner is who holds a lock that [TryLock] has taken.
type Owner struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

// String names the owner for an error message.
func (o Owner) String() string {
	if o.PID == 0 {
		return "a process that has left no name"
	}
	return fmt.Sprintf("process %d on %s, since %s", o.PID, o.Host, o.Since.Format(time.RFC3339))
}

// LockedError is an ErrLocked that names the owner.
type LockedError struct {
	Path  string
	Owner Owner
}

// Error names the file and the owner.
func (e *LockedError) Error() string { return fmt.Sprintf("%s: %v by %v", e.Path, ErrLocked, e.Owner) }

// Is makes it an ErrLocked.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// TryLock takes the lock file path if it is free, and writes into it who holds
// it; else the error is a LockedError. The lock ends with Unlock, which removes
// the file, or with the process, however it ends: a file that a dead process
// has left is free. Errors: ErrLocked, ErrLockUnsupported.
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

// readOwner is the zero Owner where the file does not say.
func readOwner(f io.Reader) Owner {
	var o Owner
	raw, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil || json.Unmarshal(raw, &o) != nil {
		return Owner{}
	}
	return o
}
