package safetensors

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// nameless is what the system offers; tests put something else there to see what
// happens on other systems.
var nameless = struct {
	create func(dir string) (*os.File, error)
	link   func(f *os.File, name string) error
}{createNameless, linkNameless}

// pendingFile has been written and waits to take its place.
type pendingFile struct {
	path      string   // where it will be, links followed
	size      int64    // bytes that it needs
	f         *os.File // open: that keeps a file without a name, and the lock on one with a temporary name
	temporary string   // its name until then, empty where it has none
	durable   bool
}

// stage writes a file of the given size, not yet by the name of path. On
// failure nothing is left behind.
func stage(path string, size int64, durable bool, write func(*fileWriter) error) (*pendingFile, error) {
	p, old, err := newPending(path, size, durable)
	if err != nil {
		return nil, writeError(path, size, err)
	}
	complete := false
	defer func() {
		if !complete { // an error, or a panic of the caller's
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

// newPending opens a file that will take the place of path. old is what is there
// now, nil for nothing.
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

// finish ends the writing. What the file system finds out only when a file is
// closed, as network file systems do, is found out here.
func (p *pendingFile) finish() error {
	if !keepsOpen {
		return p.f.Close()
	}
	return flushOnClose(p.f)
}

// commit gives the file its name. For a durable file the folder must be synced
// after that.
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
			return nil // nothing was in the way: there never was a temporary name
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

// link gives the file a name that must not be in use, one more where it has one.
func (p *pendingFile) link(name string) error {
	if p.temporary != "" {
		return os.Link(p.temporary, name)
	}
	return nameless.link(p.f, name)
}

// copyToTemporary is for systems that make files without a name and then do not
// allow to give them one.
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

// discard gives the file up.
func (p *pendingFile) discard() {
	p.f.Close()
	if p.temporary != "" {
		os.Remove(p.temporary)
		p.temporary = ""
	}
}

// checkReplaceable refuses what is no file, and files that may not be written:
// replacing them needs no right but that to their folder, so without asking
// read-only files would be no protection.
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

// writeError says which file could not be written, and how many bytes it needs.
// The temporary name that the system complains of says nothing to the user.
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
