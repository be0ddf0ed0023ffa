// Package fsatomic writes files and folders atomically: after a crash or a kill
// -9 at any moment, and for concurrent readers, they have either the old or the
// new contents, complete.
//
// A file is written under a temporary name in the folder of its target
// (".tmp-…") and renamed after it is complete and flushed to disk. [Sweep]
// removes files left behind by killed processes. [Lock] and [TryLock] keep two
// processes from doing the same work at once.
package fsatomic

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrNotRegular reports a target that exists but is not a regular file (a
// folder, a device, a pipe). Renaming over it would destroy it.
var ErrNotRegular = errors.New("not a regular file")

// A File is a file being written. Commit renames it to its target; until then,
// and after Abort or any error, the old file is unchanged.
type File struct {
	f     handle
	final string      // the target, with symlinks resolved
	temp  string      // temporary path until Commit
	mode  fs.FileMode // permissions to set; 0 keeps the umask's
	err   error       // the first failed write; such a file is never committed
	done  bool
}

// handle is the part of *os.File that File uses.
type handle interface {
	io.Writer
	io.WriterAt
	io.Seeker
	Chmod(fs.FileMode) error
	Sync() error
	Close() error
}

// Create starts writing the file path. It follows a symbolic link: the file
// that the link points to is replaced, the link stays. The new file has the
// permissions of the old one, or the default permissions if there is none. A
// file without write permission is not replaced.
func Create(path string) (*File, error) {
	final, err := follow(path)
	if err != nil {
		return nil, err
	}
	mode, err := replaceable(final)
	if err != nil {
		return nil, err
	}
	f, err := createTemp(final)
	if err != nil {
		return nil, naming(final, err)
	}
	return &File{f: f, final: final, temp: f.Name(), mode: mode}, nil
}

// WriteFile replaces the contents of the file path with data, see [Create].
func WriteFile(path string, data []byte) error {
	f, err := Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Commit()
}

// Name returns the target path.
func (f *File) Name() string { return f.final }

// Write appends to the file.
func (f *File) Write(p []byte) (int, error) {
	n, err := f.f.Write(p)
	return n, f.failed(err)
}

// WriteAt writes at an offset from the start.
func (f *File) WriteAt(p []byte, offset int64) (int, error) {
	n, err := f.f.WriteAt(p, offset)
	return n, f.failed(err)
}

// Seek sets the position of the next Write.
func (f *File) Seek(offset int64, whence int) (int64, error) {
	n, err := f.f.Seek(offset, whence)
	return n, f.failed(err)
}

// Commit flushes the file to disk and renames it to its target. After an error,
// in Commit or an earlier write, the old file is unchanged and nothing is left
// behind.
func (f *File) Commit() error {
	if f.done {
		return fmt.Errorf("commit %s: %w", f.final, fs.ErrClosed)
	}
	if f.err != nil {
		f.Abort()
		return f.err
	}
	f.done = true
	var err error
	if f.mode != 0 {
		err = f.f.Chmod(f.mode)
	}
	if err == nil {
		err = f.f.Sync()
	}
	// Windows cannot rename an open file.
	if closed := f.f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.temp, f.final)
	}
	if err != nil {
		os.Remove(f.temp)
		return naming(f.final, err)
	}
	return syncDir(filepath.Dir(f.final))
}

// Abort discards the file. After Commit it does nothing, so it can be deferred.
func (f *File) Abort() {
	if f.done {
		return
	}
	f.done = true
	f.f.Close()
	os.Remove(f.temp)
}

// failed records the first error.
func (f *File) failed(err error) error {
	if err == nil {
		return nil
	}
	err = naming(f.final, err)
	if f.err == nil {
		f.err = err
	}
	return err
}

// naming replaces the temporary name in an error with the target, which the
// user knows.
func naming(target string, err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	} else if l, ok := errors.AsType[*os.LinkError](err); ok {
		err = l.Err
	}
	return fmt.Errorf("write %s: %w", target, err)
}

// follow resolves all symbolic links of path; the target need not exist.
func follow(path string) (string, error) {
	original := path
	for range 40 { // the limit of Linux
		target, err := os.Readlink(path)
		if err != nil {
			return path, nil // not a link, or missing
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return "", fmt.Errorf("write %s: too many symbolic links", original)
}

// replaceable returns the permissions of the old file, 0 if there is none.
func replaceable(path string) (fs.FileMode, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("write %s: %w (%s)", path, ErrNotRegular, info.Mode().Type())
	}
	// A rename needs no permission for the file itself. Check it, so that
	// read-only files are protected.
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return 0, err
	}
	return info.Mode().Perm(), f.Close()
}
