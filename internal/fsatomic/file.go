// Package fsatomic writes files and folders so that a reader, a crash or a
// kill -9 at any moment finds either the old contents or the new, whole.
//
// What is being written lies beside its target under a name of its own
// (".tmp-…") and is renamed when it is complete and on the disk. [Sweep]
// removes what killed processes left behind. [Lock] and [TryLock] keep two
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

// ErrNotRegular is the error for a target that is neither a regular file nor
// missing (a folder, a device, a pipe): renaming over it would destroy it.
var ErrNotRegular = errors.New("not a regular file")

// A File is a file being written. It takes its name with Commit; until then,
// and after Abort or any error, the old file stays as it was.
type File struct {
	f     handle
	final string      // the target, symlinks followed
	temp  string      // where the bytes are until Commit
	mode  fs.FileMode // permissions to set; 0 leaves those of the umask
	err   error       // the first failed write: such a file is never committed
	done  bool
}

// handle is what File needs of *os.File.
type handle interface {
	io.Writer
	io.WriterAt
	io.Seeker
	Chmod(fs.FileMode) error
	Sync() error
	Close() error
}

// Create begins to write the file path. A symbolic link is followed: the file
// that it points to is replaced, the link stays. The new file has the
// permissions of the old one, or those of the umask where there is none. A
// file that may not be written is not replaced either.
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

// WriteFile replaces the contents of the file path by data, see [Create].
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

// Name is the path that Commit gives to the file.
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

// Seek moves the place of the next Write.
func (f *File) Seek(offset int64, whence int) (int64, error) {
	n, err := f.f.Seek(offset, whence)
	return n, f.failed(err)
}

// Commit brings the file to the disk and gives it its name. After an error
// here, or an earlier one of a write, the old file is as it was and nothing is
// left behind.
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
	// Windows does not rename an open file.
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

// Abort gives the file up and removes what was written. After Commit it does
// nothing, so that it can be deferred.
func (f *File) Abort() {
	if f.done {
		return
	}
	f.done = true
	f.f.Close()
	os.Remove(f.temp)
}

// failed keeps the first error.
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

// naming lets an error name the target: the temporary name says nothing to
// the user.
func naming(target string, err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	} else if l, ok := errors.AsType[*os.LinkError](err); ok {
		err = l.Err
	}
	return fmt.Errorf("write %s: %w", target, err)
}

// follow returns the file that path names when all symbolic links are
// followed; the file need not exist.
func follow(path string) (string, error) {
	original := path
	for range 40 { // as Linux limits it
		target, err := os.Readlink(path)
		if err != nil {
			return path, nil // not a link, or not there
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return "", fmt.Errorf("write %s: too many symbolic links", original)
}

// replaceable returns the permissions of the old file, 0 where there is none.
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
	// A rename needs no right to the file itself: ask for it, or read-only
	// files would be no protection.
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return 0, err
	}
	return info.Mode().Perm(), f.Close()
}
