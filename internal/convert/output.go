package convert

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/weights"
)

// OutputError reports a file or folder that cannot be written to. Its cause is
// [ErrExists], [ErrSource], a file of another kind, a missing parent, or an
// error of the file system.
type OutputError struct {
	Path string
	Err  error
}

// Error returns a message with the path and the cause.
func (e *OutputError) Error() string { return fmt.Sprintf("convert: output %s: %v", e.Path, e.Err) }

// Unwrap returns the cause.
func (e *OutputError) Unwrap() error { return e.Err }

// checkFile rejects a path that must not be replaced.
func checkFile(path string, s *weights.Set, replace bool) error {
	info, err := checkPath(path)
	switch {
	case err != nil || info == nil:
		return err
	case info.IsDir():
		return &OutputError{path, errors.New("there is a folder of that name, expected a file")}
	case !info.Mode().IsRegular():
		return &OutputError{path, fmt.Errorf("there is something of that name that is no regular file (%v)", info.Mode().Type())}
	}
	for _, f := range s.Files() {
		if other, err := os.Stat(f.Path()); err == nil && os.SameFile(info, other) {
			return &OutputError{path, ErrSource}
		}
	}
	if !replace {
		return &OutputError{path, ErrExists}
	}
	return nil
}

// checkFolder rejects a folder that must not be replaced, including one that
// contains the source.
func checkFolder(dir string, s *weights.Set, replace bool) error {
	info, err := checkPath(dir)
	switch {
	case err != nil || info == nil:
		return err
	case !info.IsDir():
		return &OutputError{dir, errors.New("there is a file of that name, expected a folder")}
	}
	sources := []string{s.Folder}
	for _, f := range s.Files() {
		sources = append(sources, filepath.Dir(f.Path()))
	}
	for _, source := range sources {
		if source != "" && isWithin(source, info) {
			return &OutputError{dir, ErrSource}
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return &OutputError{dir, err}
	}
	if len(entries) > 0 && !replace {
		return &OutputError{dir, ErrExists}
	}
	return nil
}

// checkPath returns the FileInfo of path, nil if it does not exist but its
// parent does.
func checkPath(path string) (fs.FileInfo, error) {
	if path == "" {
		return nil, &OutputError{path, errors.New("the name is missing")}
	}
	info, err := os.Stat(path)
	if !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			return nil, &OutputError{path, err}
		}
		return info, nil
	}
	parent := filepath.Dir(filepath.Clean(path))
	if info, err := os.Stat(parent); err != nil || !info.IsDir() {
		return nil, &OutputError{path, fmt.Errorf("there is no folder %s", parent)}
	}
	return nil, nil
}

// sweep removes files left next to path by killed conversions, which may be as
// large as their output. Failures are ignored, because such files do no harm.
func sweep(path string) { _ = fsatomic.Sweep(filepath.Dir(filepath.Clean(path))) }

// isWithin reports whether path is the folder or is inside it, with links
// resolved.
func isWithin(path string, folder fs.FileInfo) bool {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	if real, err = filepath.Abs(real); err != nil {
		return false
	}
	for {
		if info, err := os.Stat(real); err == nil && os.SameFile(info, folder) {
			return true
		}
		parent := filepath.Dir(real)
		if parent == real {
			return false
		}
		real = parent
	}
}
