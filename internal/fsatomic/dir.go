package fsatomic

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ReplaceDir calls fill to write a folder and then replaces path with it. fill
// is called with the name of an empty folder next to path. If fill returns an
// error, path is unchanged and ReplaceDir returns the error. path must be a
// folder or missing; its parent must exist. ReplaceDir follows a symbolic link.
//
// On Linux and macOS the exchange is atomic. On other systems the old folder is
// moved aside first: a process killed between the two renames leaves it under
// another name, and [Sweep] of the parent folder restores it.
func ReplaceDir(path string, fill func(dir string) error) error {
	final, err := follow(filepath.Clean(path))
	if err != nil {
		return err
	}
	old, err := os.Lstat(final)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !old.IsDir():
		return &fs.PathError{Op: "replace folder", Path: final, Err: syscall.ENOTDIR}
	}
	temp, mark, err := createTempDir(final)
	if err != nil {
		return naming(final, err)
	}
	defer os.RemoveAll(temp) // nothing, or after an exchange the old folder
	defer mark.Close()
	if err := fill(temp); err != nil {
		return err
	}
	if old != nil {
		if err := os.Chmod(temp, old.Mode().Perm()); err != nil {
			return err
		}
	}
	if err := syncTree(temp); err != nil {
		return err
	}
	if !canRemoveOpen {
		mark.Close() // an open folder cannot be renamed on Windows
	}
	if err := moveInto(temp, final, old != nil); err != nil {
		return err
	}
	return syncDir(filepath.Dir(final))
}

// ReplaceFile calls fill to write a file and then replaces path with it, like
// [ReplaceDir] for one file. fill is called with the name of a file in a new,
// empty folder, and may read the file back. Use it instead of [Create] if the
// writer needs a file name, or the file must be checked before it replaces
// another.
func ReplaceFile(path string, fill func(name string) error) error {
	final, err := follow(path)
	if err != nil {
		return err
	}
	mode, err := replaceable(final)
	if err != nil {
		return err
	}
	folder, mark, err := createTempDir(final)
	if err != nil {
		return naming(final, err)
	}
	defer os.RemoveAll(folder)
	defer mark.Close()
	name := filepath.Join(folder, filepath.Base(final))
	if err := fill(name); err != nil {
		return err
	}
	if mode != 0 {
		if err := os.Chmod(name, mode); err != nil {
			return naming(final, err)
		}
	}
	if err := syncFile(name); err != nil {
		return naming(final, err)
	}
	if err := os.Rename(name, final); err != nil {
		return naming(final, err)
	}
	return syncDir(filepath.Dir(final))
}

// RemoveDir removes a folder with its contents. It renames the folder first, so
// that a killed process leaves only parts that [Sweep] removes.
func RemoveDir(path string) error {
	gone := tempName(tempPrefix, path)
	if err := os.Rename(path, gone); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return os.RemoveAll(gone)
}

func moveInto(temp, final string, replace bool) error {
	if !replace {
		return os.Rename(temp, final)
	}
	err := exchange(temp, final)
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return stepAside(temp, final)
}

// stepAside exchanges the folders with two renames. The first one must be on
// disk before the second, or a power failure could lose both.
func stepAside(temp, final string) error {
	aside := tempName(oldPrefix, final)
	if err := os.Rename(final, aside); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(final)); err != nil {
		return errors.Join(err, os.Rename(aside, final))
	}
	if err := os.Rename(temp, final); err != nil {
		return errors.Join(err, os.Rename(aside, final))
	}
	if err := syncDir(filepath.Dir(final)); err != nil {
		return err
	}
	return os.RemoveAll(aside)
}

// syncTree flushes every file and folder under root to disk.
func syncTree(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return syncDir(path)
		case !d.Type().IsRegular():
			return nil
		}
		return syncFile(path)
	})
}
