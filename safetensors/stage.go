package safetensors

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// pendingFile has been written under a temporary name and waits to take its
// place.
type pendingFile struct {
	temporary, path string
	syncFolder      bool
}

// stage writes a file of the given size under a temporary name in the folder of
// path, after any symbolic link. On failure nothing is left behind.
func stage(path string, size int64, o options, write func(io.Writer) error) (_ *pendingFile, err error) {
	target, old, err := followLinks(path)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	if old != nil {
		if err := checkRegular(target, old); err != nil {
			return nil, err
		}
	}
	f, err := createTemporary(filepath.Dir(target))
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	defer func() {
		if err != nil {
			f.Close() // a second time does no harm
			os.Remove(f.Name())
			err = withPath(err, path)
		}
	}()
	if old != nil {
		if err := f.Chmod(old.Mode().Perm()); err != nil {
			return nil, fmt.Errorf("safetensors: %w", err)
		}
	}
	if err := preallocate(f, size); err != nil {
		return nil, fmt.Errorf("safetensors: %s: allocate %d bytes: %w", path, size, err)
	}
	if err := write(f); err != nil {
		return nil, err
	}
	if o.syncFile {
		if err := f.Sync(); err != nil {
			return nil, fmt.Errorf("safetensors: %w", err)
		}
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	return &pendingFile{temporary: f.Name(), path: target, syncFolder: o.syncFolder}, nil
}

// commit gives the file its name.
func (p *pendingFile) commit() error {
	if err := os.Rename(p.temporary, p.path); err != nil {
		return errors.Join(fmt.Errorf("safetensors: %w", err), os.Remove(p.temporary))
	}
	if p.syncFolder {
		if err := syncFolder(filepath.Dir(p.path)); err != nil {
			return fmt.Errorf("safetensors: %w", err)
		}
	}
	return nil
}

func (p *pendingFile) discard() error { return os.Remove(p.temporary) }

// createTemporary does not use os.CreateTemp, which makes files that only their
// owner can read: the umask decides. The name says what left it behind.
func createTemporary(dir string) (*os.File, error) {
	for {
		name := filepath.Join(dir, fmt.Sprintf(".safetensors-%016x.tmp", rand.Uint64()))
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}

// followLinks returns the path of the file that path leads to, and what is there
// now, nil for nothing. A link to a file that does not exist yet is followed.
func followLinks(path string) (string, fs.FileInfo, error) {
	const most = 40 // as Linux has it
	for range most {
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return path, nil, nil
		case err != nil:
			return "", nil, err
		case info.Mode()&fs.ModeSymlink == 0:
			return path, info, nil
		}
		link, err := os.Readlink(path)
		if err != nil {
			return "", nil, err
		}
		if !filepath.IsAbs(link) {
			// A link is relative to the folder that really holds it.
			dir, err := filepath.EvalSymlinks(filepath.Dir(path))
			if err != nil {
				return "", nil, err
			}
			// Not Join, which would take a ".." after a link for its inverse.
			link = dir + string(filepath.Separator) + link
		}
		path = link
	}
	return "", nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("too many links")}
}
