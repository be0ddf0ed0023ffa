package safetensors

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// nameless holds the system's functions for files without a name. Tests replace
// them to simulate other systems.
var nameless = struct {
	create func(dir string) (*os.File, error)
	link   func(f *os.File, name string) error
}{createNameless, linkNameless}

// pendingFile is a complete file that has not replaced its target yet.
type pendingFile struct {
	path      string   // final path, links resolved
	size      int64    // bytes that the file needs
	f         *os.File // kept open to keep a file without a name, and the lock of a file with a temporary name
	temporary string   // temporary name, empty if none
	durable   bool
}

// stage writes a file of the given size without naming it path yet. On failure
// it leaves nothing behind.
func stage(path string, size int64, durable bool, write func(*fileWriter) error) (*pendingFile, error) {
	p, old, err := newPending(path, size, durable)
	if err != nil {
		return nil, writeError(path, size, err)
	}
	complete := false
	defer func() {
		if !complete { // an error, or a panic of the caller
			p.discard()
		}
	}()
	if old != nil {
		if err := p.f.Chmod(old.Mode().Perm()); err != nil {
			return nil, writeError(path, size, err)
		}
	}
	if err := preallocate(p.f, size); err != nil {
		return nil, writeError(path, size, err)
	}
	w := &fileWriter{f: p.f}
	defer w.release()
	if err := write(w); err != nil {
		return nil, writeError(path, size, err)
	}
	if durable {
		if err := p.f.Sync(); err != nil {
			return nil, writeError(path, size, err)
		}
	}
	if err := p.finish(); err != nil {
		return nil, writeError(path, size, err)
	}
	complete = true
	return p, nil
}

// newPending opens a file that will replace path. old is the FileInfo of the
// current file, nil if there is none.
func newPending(path string, size int64, durable bool) (p *pendingFile, old fs.FileInfo, err error) {
	target, old, err := followLinks(path)
	if err != nil {
		return nil, nil, err
	}
	if old != nil {
		if err := checkReplaceable(target, old); err != nil {
			return nil, nil, err
		}
	}
	p = &pendingFile{path: target, size: size, durable: durable}
	p.f, err = nameless.create(filepath.Dir(target))
	if errors.Is(err, errors.ErrUnsupported) {
		p.f, err = createTemporary(target)
		if err == nil {
			p.temporary = p.f.Name()
		}
	}
	return p, old, err
}

// finish ends the writing. It reports errors that a file system detects only
// when a file is closed, as network file systems do.
func (p *pendingFile) finish() error {
	if !keepsOpen {
		return p.f.Close()
	}
	return flushOnClose(p.f)
}

// commit renames the file to its final path. For a durable file the caller must
// sync the folder afterwards.
func (p *pendingFile) commit() error {
	err := p.rename()
	if err != nil {
		p.discard()
		return writeError(p.path, p.size, err)
	}
	p.f.Close()
	return nil
}

func (p *pendingFile) rename() error {
	if p.temporary == "" {
		err := p.link(p.path)
		if err == nil {
			return nil // no file was at the path, so no temporary name was used
		}
		if errors.Is(err, fs.ErrExist) {
			p.temporary, err = linkTemporary(p.f, p.path)
		}
		if err != nil {
			err = p.copyToTemporary()
		}
		if err != nil {
			return err
		}
	}
	err := os.Rename(p.temporary, p.path)
	if err == nil {
		p.temporary = ""
	}
	return err
}

// link adds a name, which must not be in use.
func (p *pendingFile) link(name string) error {
	if p.temporary != "" {
		return os.Link(p.temporary, name)
	}
	return nameless.link(p.f, name)
}

// copyToTemporary handles systems that create files without a name but do not
// allow naming them.
func (p *pendingFile) copyToTemporary() error {
	f, err := createTemporary(p.path)
	if err != nil {
		return err
	}
	whole := p.f
	defer whole.Close()
	p.f, p.temporary = f, f.Name()
	info, err := whole.Stat()
	if err == nil {
		err = f.Chmod(info.Mode().Perm())
	}
	if err == nil {
		_, err = whole.Seek(0, io.SeekStart)
	}
	if err == nil {
		_, err = io.Copy(f, whole)
	}
	if err == nil && p.durable {
		err = f.Sync()
	}
	if err == nil {
		err = p.finish()
	}
	return err
}

// discard closes and removes the file.
func (p *pendingFile) discard() {
	p.f.Close()
	if p.temporary != "" {
		os.Remove(p.temporary)
		p.temporary = ""
	}
}

// checkReplaceable rejects targets that are not regular files, and files
// without write permission. Replacing a file needs write permission for its
// folder only, so without this check read-only files would not be protected.
func checkReplaceable(path string, old fs.FileInfo) error {
	if err := checkRegular(path, old); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// writeError returns the error of a failed write with the path and the number
// of bytes needed. It drops the temporary name in the system's error, which the
// user does not know.
func writeError(path string, size int64, err error) error {
	var format *FormatError
	if errors.As(err, &format) && error(format) == err {
		return withPath(err, path)
	}
	var ofPath *fs.PathError
	var ofLink *os.LinkError
	switch {
	case errors.As(err, &ofPath) && error(ofPath) == err:
		err = ofPath.Err
	case errors.As(err, &ofLink) && error(ofLink) == err:
		err = ofLink.Err
	}
	if path == "" {
		return fmt.Errorf("safetensors: write: %w", err)
	}
	return fmt.Errorf("safetensors: write %s (%s): %w", path, byteCount(uint64(size)), err)
}
