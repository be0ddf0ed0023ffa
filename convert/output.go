package convert

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/weights"
)

// OutputError says why a file or a folder is not one to write to: [ErrExists],
// [ErrSource], something else of that name, no parent, or what the file system
// says.
type OutputError struct {
	Path string
	Err  error
}

// Error names the path and what is wrong with it.
func (e *OutputError) Error() string { return fmt.Sprintf("convert: output %s: %v", e.Path, e.Err) }

// Unwrap gives the cause to errors.Is.
func (e *OutputError) Unwrap() error { return e.Err }

// checkFile refuses to replace what should be kept.
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

// checkFolder is checkFile for a folder, which must not hold what is read.
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

// checkPath says what is at path, nil for nothing in a folder that is there.
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

// sweep removes what conversions that were killed have left beside path: as much
// as they would have written. What cannot be removed is in nobody's way.
func sweep(path string) { _ = fsatomic.Sweep(filepath.Dir(filepath.Clean(path))) }

// isWithin reports whether path is the folder or lies below it, wherever links
// lead.
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
