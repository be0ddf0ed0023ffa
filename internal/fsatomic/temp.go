package fsatomic

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// Temporary names are ".tmp-<12 hex digits>-<target>". A folder that is
// temporarily moved aside is named ".old-<12 hex digits>-<target>".
const (
	tempPrefix = ".tmp-"
	oldPrefix  = ".old-"
)

var leftover = regexp.MustCompile(`^\.(tmp|old)-[0-9a-f]{12}-(.+)$`)

// longestBase keeps a temporary name within the 255 bytes of most file systems.
const longestBase = 200

func tempName(prefix, target string) string {
	var b [6]byte
	rand.Read(b[:]) // never fails
	base := filepath.Base(target)
	if prefix == tempPrefix && len(base) > longestBase {
		base = base[:longestBase]
	}
	return filepath.Join(filepath.Dir(target), prefix+hex.EncodeToString(b[:])+"-"+base)
}

// createTemp creates the temporary file for target and marks it as in use.
func createTemp(target string) (*os.File, error) {
	for {
		f, err := os.OpenFile(tempName(tempPrefix, target), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if inUse(f) {
			return f, nil
		}
		f.Close() // another process has removed it
		os.Remove(f.Name())
	}
}

// createTempDir creates the temporary folder for target. The returned handle
// marks it as in use until it is closed; it is nil if folders cannot be locked.
func createTempDir(target string) (dir string, mark *os.File, err error) {
	for {
		dir = tempName(tempPrefix, target)
		err := os.Mkdir(dir, 0o777)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", nil, err
		}
		mark, err := os.Open(dir)
		if err != nil {
			os.Remove(dir)
			return "", nil, err
		}
		if inUse(mark) {
			return dir, mark, nil
		}
		mark.Close()
		os.Remove(dir)
	}
}

// inUse marks a new temporary file or folder as belonging to a living process
// and reports whether it still exists.
func inUse(f *os.File) bool {
	if locked, err := tryLock(f); err != nil || !locked {
		// Without locks (some network file systems) only its age protects it.
		return err != nil
	}
	return stillThere(f)
}

// stillThere reports whether the name of f still refers to f.
func stillThere(f *os.File) bool {
	now, err := os.Stat(f.Name())
	if err != nil {
		return false
	}
	then, err := f.Stat()
	return err == nil && os.SameFile(now, then)
}

// fresh is the age below which a file without a usable lock may belong to a
// living process.
const fresh = 24 * time.Hour

// Sweep cleans the folder dir up after killed writers. It removes their
// temporary files and folders, and renames a folder back that was moved aside
// when its replacement was interrupted. Files of living processes are kept. A
// missing dir is not an error. Call Sweep before the first write into a folder,
// and before reading a folder written by [ReplaceDir].
func Sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		m := leftover.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if m[1] == "old" {
			if restored, err := restore(path, filepath.Join(dir, m[2])); restored || err != nil {
				errs = append(errs, err)
				continue
			}
		}
		errs = append(errs, removeAbandoned(path))
	}
	return errors.Join(errs...)
}

// restore renames old to target unless target exists.
func restore(old, target string) (bool, error) {
	if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err := os.Rename(old, target); err != nil {
		return false, err
	}
	return true, syncDir(filepath.Dir(target))
}

// removeAbandoned removes path unless a living process is writing it.
func removeAbandoned(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	locked, err := tryLock(f)
	if err != nil { // locks are not supported
		info, err := f.Stat()
		f.Close()
		if err != nil || time.Since(info.ModTime()) < fresh {
			return err
		}
		return os.RemoveAll(path)
	}
	if !locked {
		return f.Close()
	}
	if !canRemoveOpen {
		f.Close()
		return os.RemoveAll(path)
	}
	defer f.Close() // closed after the removal, so that no new owner takes the lock before
	return os.RemoveAll(path)
}
