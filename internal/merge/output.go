package merge

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// OutputError reports a folder that cannot be written to. Its cause is
// [ErrNotEmpty], [ErrSource], a file of that name, a missing parent, or an
// error of the file system.
type OutputError struct {
	Dir string
	Err error
}

// Error returns a message with the folder and the cause.
func (e *OutputError) Error() string { return fmt.Sprintf("merge: output %s: %v", e.Dir, e.Err) }

// Unwrap returns the cause.
func (e *OutputError) Unwrap() error { return e.Err }

// checkOutput rejects a folder that must not be replaced.
func checkOutput(dir string, replace bool, sources ...string) error {
	fail := func(err error) error { return &OutputError{dir, err} }
	if dir == "" {
		return fail(errors.New("the name of the folder is missing"))
	}
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		parent := filepath.Dir(filepath.Clean(dir))
		if info, err := os.Stat(parent); err != nil || !info.IsDir() {
			return fail(fmt.Errorf("there is no folder %s", parent))
		}
		return nil
	}
	if err != nil {
		return fail(err)
	}
	if !info.IsDir() {
		return fail(errors.New("there is a file of that name, expected a folder"))
	}
	for _, s := range sources {
		if other, err := os.Stat(s); err == nil && os.SameFile(info, other) {
			return fail(ErrSource)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fail(err)
	}
	if len(entries) > 0 && !replace {
		return fail(ErrNotEmpty)
	}
	return nil
}
