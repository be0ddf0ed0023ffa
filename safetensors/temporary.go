package safetensors

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
)

// A file being written is named .NAME.unfinished. If another process is writing
// the same file, the name of the second one has sixteen more digits.
const unfinished = ".unfinished"

func temporaryName(target, more string) string {
	const longest = 200 // bytes; most file systems take 255
	dir, base := filepath.Split(target)
	return dir + "." + base[:min(len(base), longest)] + more + unfinished
}

var temporaryPattern = regexp.MustCompile(`^\.(.+?)(\.[0-9a-f]{16})?\` + unfinished + `$`)

// temporaryTarget returns the name of the final file, given its temporary name.
func temporaryTarget(name string) (target string, ok bool) {
	if m := temporaryPattern.FindStringSubmatch(name); m != nil {
		return m[1], true
	}
	return "", false
}

// withTemporaryName calls create functions with names until one is not in use.
// It removes a file that a dead process has left under the first name.
func withTemporaryName(target string, make func(name string) error) (string, error) {
	name := temporaryName(target, "")
	for {
		err := make(name)
		if !errors.Is(err, fs.ErrExist) {
			return name, err
		}
		if !removeAbandoned(name) {
			name = temporaryName(target, fmt.Sprintf(".%016x", rand.Uint64()))
		}
	}
}

// createTemporary creates the file that will replace target. It does not use
// os.CreateTemp, whose files are readable by their owner only: here the umask
// decides.
func createTemporary(target string) (*os.File, error) {
	for {
		var f *os.File
		_, err := withTemporaryName(target, func(name string) (err error) {
			f, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
			return err
		})
		if err != nil {
			return nil, err
		}
		// The lock shows that the writer is alive. Without locks, temporary
		// files of others are never removed.
		if locked, err := tryLock(f); err != nil || locked && stillThere(f) {
			return f, nil
		}
		f.Close() // it was removed before it could be locked
	}
}

// linkTemporary gives a file without a name a temporary name, from which it can
// be renamed.
func linkTemporary(f *os.File, target string) (string, error) {
	_, _ = tryLock(f) // no other process can hold the lock
	return withTemporaryName(target, func(name string) error { return nameless.link(f, name) })
}

// removeAbandoned removes a temporary file unless a process is writing it, and
// reports whether the name is free.
func removeAbandoned(name string) bool {
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := os.OpenFile(name, openFlags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if err != nil {
		return false
	}
	defer f.Close() // closed after the removal, so that the lock is held until then
	if locked, err := tryLock(f); err != nil || !locked {
		return false
	}
	return !stillThere(f) || os.Remove(name) == nil
}

// stillThere reports whether the name of f still refers to f.
func stillThere(f *os.File) bool {
	there, err := os.Lstat(f.Name())
	if err != nil {
		return false
	}
	open, err := f.Stat()
	return err == nil && os.SameFile(there, open)
}
